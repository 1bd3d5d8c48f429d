-- Part of the scripts: the record of a task, in the slot of its queue. Each function is a step of its own on a Cluster,
-- where its first argument is KEYS[1] and the others are ARGV; each is atomic, since two runs of one task may be under
-- way.
--
-- The record is kept in fields of asynq's hash of the task, so that it goes with the task: railtoken:retried,
-- :conflicts, :first, :place (its score among the waiters), :waiters, the set of waiters that it is in or was woken
-- from, :also, further sets that it is in (awaits), :look, its timer if it were next (ms), and :freed, the waiters of a
-- key that it found free when it was to wait for it. railtoken:own is '1' when the key is none of a lock. railtoken:deadline (unix s, 0 for none), which never changes, stays: a wake need not read
-- the message for it, with all of the payload.

-- forget(task) clears the record. Returns how much of it there was.
local function forget(task)
  return redis.call('HDEL', task, 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:place', 'railtoken:waiters',
    'railtoken:also', 'railtoken:look', 'railtoken:freed', 'railtoken:own', 'railtoken:woken')
end

-- unplace(task) notes that a task is not among any waiters, and keeps its conflicts.
local function unplace(task)
  return redis.call('HDEL', task, 'railtoken:place', 'railtoken:waiters', 'railtoken:also')
end

-- note(task, waiters, retry count, its timer if it were next (ms), how long ago it was first refused in
-- this run (us), deadline, '1' when it is a conflict of the program's own, else '', further sets or '') counts a conflict of
-- a task that is there. Returns {conflicts, first conflict (us), place, waiters before or '', now (us), waiters of the key that it had found free before or ''}. When the waiters
-- before is another one, the record names that until stand is called: the task must have left it by then.
local function note(task, waiters, retried, look, ago, deadline, own, also)
  local record = redis.call('HMGET', task, 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:place',
    'railtoken:waiters', 'railtoken:deadline', 'railtoken:freed', 'railtoken:own', 'railtoken:also')
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local conflicts, first, place, before, freed = 0, 0, nil, record[5] or '', ''
  if record[1] == retried then
    conflicts, first, place, freed = tonumber(record[2]), tonumber(record[3]), tonumber(record[4]), record[7] or ''
  end
  if record[7] then
    redis.call('HDEL', task, 'railtoken:freed')
  end
  if first <= 0 or first > now then
    first = now - tonumber(ago)
  end
  conflicts = conflicts + 1
  local since, stands = string.format('%.0f', first), string.format('%.0f', place or first)
  redis.call('HSET', task, 'railtoken:retried', retried, 'railtoken:conflicts', conflicts, 'railtoken:first', since,
    'railtoken:place', stands, 'railtoken:look', look, 'railtoken:waiters', before == '' and waiters or before)
  if own == '1' then
    redis.call('HSET', task, 'railtoken:own', own)
  elseif record[8] then
    redis.call('HDEL', task, 'railtoken:own')
  end
  if also ~= '' then
    redis.call('HSET', task, 'railtoken:also', also)
  elseif record[9] then
    redis.call('HDEL', task, 'railtoken:also')
  end
  if not record[6] then
    redis.call('HSET', task, 'railtoken:deadline', deadline)
  end
  return {conflicts, since, stands, before, string.format('%.0f', now), freed}
end

-- stand(task, waiters, place) notes the set and the place of a task that still exists. Returns 1, or 0 when it is
-- gone.
local function stand(task, waiters, place)
  if redis.call('EXISTS', task) == 0 then
    return 0
  end
  redis.call('HSET', task, 'railtoken:waiters', waiters, 'railtoken:place', place)
  return 1
end

-- leave(task) clears the record of a task whose run ends. Returns {1 when its entry must go, else 0; how much of a
-- record there was}: when asynq has given a run up and begun another, the entry and the record are that one's.
local function leave(task)
  local state = redis.call('HGET', task, 'state')
  if state == 'retry' or state == 'pending' then
    return {0, 0}
  end
  return {1, forget(task)}
end
