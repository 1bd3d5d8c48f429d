-- Notes that a task waits for a key, and counts the conflict (DESIGN 5.1). It must be atomic: the bounds hold at the moment
-- at which the task joins, and a task waits for one key at a time.
--
-- KEYS  1 registry of the key   2 the task's hash (asynq's own)
-- ARGV  1 member   2 retry count of the task   3 most conflicts   4 most age (us)   5 most waiters
--       6 conflicts before   7 first conflict before (us), 0 for none   8 how long an idle registry is kept (ms)
--
-- Returns {bound, conflicts, first conflict (us), waiters, registry of another key that the task was woken for, or ''}. The
-- bound is '' when the task waits now; 'gone' when there is no such task; else the bound that it has reached, and it does
-- not wait.
local registry, task, member = KEYS[1], KEYS[2], ARGV[1]
if redis.call('EXISTS', task) == 0 then
  redis.call('ZREM', registry, member)
  return {'gone', 0, '0', 0, ''}
end

-- The conflicts of one attempt belong together: when the retry count has moved, the task has run since.
local record = redis.call('HMGET', task, 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:registry')
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local conflicts, first, before = tonumber(ARGV[6]), tonumber(ARGV[7]), record[4] or ''
if record[1] == ARGV[2] then
  conflicts, first = tonumber(record[2]), tonumber(record[3])
end
if first == 0 then
  first = now
end
conflicts = conflicts + 1

local waiting = redis.call('ZSCORE', registry, member)
local waiters = redis.call('ZCARD', registry)
local bound = ''
if conflicts > tonumber(ARGV[3]) then
  bound = 'conflicts'
elseif now - first > tonumber(ARGV[4]) then
  bound = 'age'
elseif not waiting and waiters >= tonumber(ARGV[5]) then
  bound = 'waiters'
end
local swallowed = ''
if before ~= '' and (before ~= registry or bound ~= '') then
  if redis.call('ZREM', before, member) == 0 and before ~= registry then
    swallowed = before -- it was woken for that key, and will not be the one to give it back
  end
end
if bound == '' and not waiting then
  -- Places are given by the first conflict; of two in the same microsecond the earlier arrival keeps the earlier place.
  local place = first
  if conflicts == 1 then
    local last = redis.call('ZRANGE', registry, -1, -1, 'WITHSCORES')
    if last[2] and tonumber(last[2]) >= place then
      place = tonumber(last[2]) + 1
      first = place
    end
  end
  redis.call('ZADD', registry, string.format('%.0f', place), member)
  waiters = waiters + 1
end
if bound == '' then
  redis.call('PEXPIRE', registry, ARGV[8])
end
redis.call('HSET', task, 'railtoken:retried', ARGV[2], 'railtoken:conflicts', conflicts,
  'railtoken:first', string.format('%.0f', first), 'railtoken:registry', bound == '' and registry or '')
return {bound, conflicts, string.format('%.0f', first), waiters, swallowed}
