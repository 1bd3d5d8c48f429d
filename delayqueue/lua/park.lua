-- Notes that a task waits for a key, and counts the conflict (DESIGN 5.1). It must be atomic: the bounds hold at the moment
-- at which the task joins, and a task waits for one key at a time.
--
-- KEYS  1 registry of the key   2 the task's hash (asynq's own)
-- ARGV  1 member   2 retry count of the task   3 most conflicts   4 most age (us)   5 most waiters
--       6 conflicts before   7 first conflict before (us), 0 for none   8 how long an idle registry is kept (ms)
--
-- Returns {bound, conflicts, first conflict (us), waiters, registry of another key that the task was woken for, or ''}. The
-- bound is '' when the task waits now; 'gone' when there is no such task; else the bound that it has reached: then it does not
-- wait, and its count begins anew.
--
-- The record of a task is kept in fields of its hash, so that it goes with the task: railtoken:retried, :conflicts, :first,
-- :place (its score in a registry) and :registry. wake.lua clears it when the task has run.
local registry, task, member = KEYS[1], KEYS[2], ARGV[1]
local most_waiters = tonumber(ARGV[5])
if redis.call('EXISTS', task) == 0 then
  redis.call('ZREM', registry, member)
  return {'gone', 0, '0', 0, ''}
end

local record = redis.call('HMGET', task, 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:place',
  'railtoken:registry')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local conflicts, first, place, before = math.max(tonumber(ARGV[6]), 0), tonumber(ARGV[7]), nil, record[5] or ''
if record[1] == ARGV[2] then
  conflicts, first, place = tonumber(record[2]), tonumber(record[3]), tonumber(record[4])
end
if first <= 0 or first > now then
  first = now
end
conflicts = conflicts + 1

-- Of those who seem to wait some may be gone: deleted or archived by hand. They count only after a look at them.
local waiting = redis.call('ZSCORE', registry, member)
local waiters = redis.call('ZCARD', registry)
if not waiting and waiters >= most_waiters then
  for _, other in ipairs(redis.call('ZRANGE', registry, 0, 999)) do
    local size, rest = string.match(other, '^(%d+):(.*)$')
    local queue, id = string.sub(rest, 1, tonumber(size)), string.sub(rest, tonumber(size) + 1)
    local state = redis.call('HGET', 'asynq:{' .. queue .. '}:t:' .. id, 'state')
    if not state or state == 'archived' or state == 'completed' then
      redis.call('ZREM', registry, other)
    end
  end
  waiters = redis.call('ZCARD', registry)
end

local bound = ''
if conflicts > tonumber(ARGV[3]) then
  bound = 'conflicts'
elseif now - first > tonumber(ARGV[4]) then
  bound = 'age'
elseif not waiting and waiters >= most_waiters then
  bound = 'waiters'
end
local swallowed = ''
if before ~= '' and (before ~= registry or bound ~= '') then
  if redis.call('ZREM', before, member) == 0 and before ~= registry then
    swallowed = before -- it was woken for that key, and will not be the one to give it back
  end
end
if bound ~= '' then
  redis.call('HDEL', task, 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:place', 'railtoken:registry')
  return {bound, conflicts, string.format('%.0f', first), waiters, swallowed}
end

-- Places are given by the first conflict; of two in the same microsecond the earlier arrival has the earlier place.
if not place then
  place = first
  local last = redis.call('ZRANGE', registry, -1, -1, 'WITHSCORES')
  if conflicts == 1 and last[2] and tonumber(last[2]) >= place then
    place = tonumber(last[2]) + 1
  end
end
if not waiting then
  redis.call('ZADD', registry, string.format('%.0f', place), member)
  waiters = waiters + 1
end
redis.call('PEXPIRE', registry, ARGV[8])
redis.call('HDEL', task, 'railtoken:passed')
redis.call('HSET', task, 'railtoken:retried', ARGV[2], 'railtoken:conflicts', conflicts, 'railtoken:first',
  string.format('%.0f', first), 'railtoken:place', string.format('%.0f', place), 'railtoken:registry', registry)
return {'', conflicts, string.format('%.0f', first), waiters, swallowed}
