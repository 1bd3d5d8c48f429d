-- Looks whether a task has ended, and if not, has its end announced. It must be atomic: an end comes before it, and is seen, or
-- after it, and is announced.
--
-- KEYS  1 the task's hash   2 the flag of its queue   3 archived of its queue   ARGV  1 ID   2 channel   3 how long the flag lives
-- (ms)
--
-- Returns {state, message, result, 'railtoken:ended', when it was archived (s)} of a task that has ended; {'gone'} of one that does
-- not exist; {state, message} of any other.
local found = redis.call('HMGET', KEYS[1], 'state', 'msg', 'result', 'railtoken:ended', 'railtoken:awaited')
local state, awaited = found[1], found[5] or ''
if not state then
  return {'gone'}
elseif state == 'completed' or state == 'archived' then
  local at = state == 'archived' and redis.call('ZSCORE', KEYS[3], ARGV[1]) or '0'
  return {state, found[2] or '', found[3] or '', found[4] or '', at}
end
if not string.find(awaited, ARGV[2], 1, true) then
  redis.call('HSET', KEYS[1], 'railtoken:awaited', awaited == '' and ARGV[2] or awaited .. ' ' .. ARGV[2])
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
return {state, found[2] or ''}
