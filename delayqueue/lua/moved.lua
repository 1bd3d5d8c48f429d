-- Part of the scripts: the name of a move, in the task's hash, and its tombstone. Each function is a step of its own on a Cluster, where its
-- first argument is KEYS[1] and the others are ARGV.

-- named(task, name under which the task itself was moved, or '') returns {name or '', conflicts of the task, its first conflict (us), the name
-- under which it has run, or ''}, or {} when there is no such task.
local function named(task, own)
  if redis.call('EXISTS', task) == 0 then
    return {}
  end
  local record = redis.call('HMGET', task, 'railtoken:move', 'railtoken:conflicts', 'railtoken:first', 'railtoken:ran')
  return {record[1] or own, record[2] or '0', record[3] or '0', record[4] or ''}
end

-- whose(tombstone, who) returns which run of the task has begun under a name: 'nobody', 'own', 'another', or 'unnoted' for its own of which the
-- task need not know: a worker of an earlier version, which a rolling upgrade still runs, leaves no note of it.
local function whose(tombstone, who)
  local ran = redis.call('GET', tombstone)
  if not ran then
    return 'nobody'
  elseif ran ~= who then
    return 'another'
  end
  return redis.call('EXISTS', tombstone .. ':noted') == 1 and 'own' or 'unnoted'
end

-- rename(task, own, the name that it had, a new name) names the move, unless another run has named it since: it must be atomic, or the
-- two would use two names. Returns the name that stands, or '' when there is no such task.
local function rename(task, own, old, new)
  if redis.call('EXISTS', task) == 0 then
    return ''
  end
  local name = redis.call('HGET', task, 'railtoken:move') or own
  if name ~= old then
    return name
  end
  redis.call('HSET', task, 'railtoken:move', new)
  return new
end
