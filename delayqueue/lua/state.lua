-- Part of the scripts: asynq's state of a task, in the slot of its queue. Each function is a step of its own on a Cluster, where its first
-- argument is KEYS[1] and the others are ARGV. It must be atomic: asynq may change the state at any moment. What check and promote need is
-- declared as KEYS  1 the task's hash   2 retry   3 scheduled   4 pending of its queue, so that neither begins while they move.

-- ended(task) returns 1 when the task has gone for good, unless an operator fetches it back: it cannot wait.
local function ended(task)
  local state = redis.call('HGET', task, 'state')
  return (not state or state == 'archived' or state == 'completed') and 1 or 0
end

-- check(task, registry, now (ns)) returns what a wake finds, asynq's state, how often the task was refused, and its place:
--   'active'     its handler has not returned yet: it is about to park
--   'passed'     the same, but it was passed over before, so its worker has most likely been killed
--   'here'       it can be woken
--   'elsewhere'  it waits in another line, and its entry in this one is left over
--   'overdue'    its deadline has passed: asynq runs its handler no more, and archives it in the end
--   'gone'       it cannot be woken
local function check(task, registry, now)
  local found = redis.call('HMGET', task, 'state', 'railtoken:registry', 'railtoken:passed', 'railtoken:conflicts', 'railtoken:place',
    'railtoken:deadline')
  local state, refused, place = found[1] or '', found[4] or '', found[5] or '0'
  if found[2] and found[2] ~= registry then
    return {'elsewhere', state, refused, place}
  elseif state == 'active' then
    return {found[3] and 'passed' or 'active', state, refused, place}
  elseif state == 'retry' or state == 'scheduled' or state == 'pending' then
    local deadline = tonumber(found[6] or 0)
    return {deadline > 0 and deadline <= now / 1e9 and 'overdue' or 'here', state, refused, place}
  end
  return {'gone', state, refused, place}
end

-- mark(task) notes that a task that is active was passed over.
local function mark(task)
  if redis.call('HGET', task, 'state') == 'active' then
    redis.call('HSET', task, 'railtoken:passed', '1')
  end
  return 1
end

-- pull(entry, asynq's state) takes a task from where it waits. Returns whether it was there; it must then be pushed. One that is pending, because its
-- timer has brought it back or an operator has, comes by itself: it is looked for at either end of the list alone, or it would cost a look at
-- all of the backlog.
local function pull(entry, state)
  local id, prefix = parse(entry)
  if state ~= 'pending' then
    return redis.call('ZREM', prefix .. state, id) == 1
  end
  for _, from in ipairs({1, -1}) do -- at the tail, where it was pushed, first
    if redis.call('LPOS', prefix .. 'pending', id, 'RANK', from, 'MAXLEN', 1000) then
      return redis.call('LREM', prefix .. 'pending', from, id) == 1
    end
  end
  return false
end

-- push(entry, now (ns)) puts a task that was pulled at the head of its queue.
local function push(entry, now)
  local id, prefix, task = parse(entry)
  redis.call('HSET', task, 'state', 'pending', 'pending_since', now)
  redis.call('RPUSH', prefix .. 'pending', id)
end

-- paused(key) returns whether a queue is paused.
local function paused(key)
  return redis.call('EXISTS', key)
end

-- hasten(task, entry, now (ns)) has a parked task look for itself as soon as it wanted to if nobody stood before it. KEYS  1 the task's hash
-- 2 retry of its queue
local function hasten(task, entry, now)
  local id, prefix = parse(entry)
  local look = redis.call('HGET', task, 'railtoken:look')
  if look and tonumber(look) > 0 then
    redis.call('ZADD', prefix .. 'retry', 'XX', 'LT', string.format('%.0f', math.ceil(now / 1e9 + look / 1000) + 1), id)
  end
end

-- promote(task, registry, entry, now (ns), how often it was refused before) moves a task to the head of its queue, if it can be woken. Returns
-- {'woken'}, or {what check found}; or {'again', its place} when it is active and was refused once more since: then it is about to park.
local function promote(task, registry, entry, now, refused)
  local found = check(task, registry, now)
  if (found[1] == 'active' or found[1] == 'passed') and found[3] ~= refused then
    return {'again', found[4]}
  elseif found[1] ~= 'here' then
    return {found[1]}
  elseif not pull(entry, found[2]) then
    return {'gone'}
  end
  push(entry, now)
  return {'woken'}
end
