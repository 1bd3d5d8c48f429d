-- Returns keys for which a wake is owed and that nobody has looked at in time, and leaves the others that call it time to do
-- so. It must be atomic: of two processes one has each key.
--
-- KEYS  1 owed wakes   ARGV  1 how long they are left to the caller (ms)   2 how many at most
--
-- Returns {now (ms), the sets of waiters of these keys...}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due, later = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2]), {}
for i, waiters in ipairs(due) do
  later[2 * i - 1], later[2 * i] = now + ARGV[1], waiters
end
if #due > 0 then
  redis.call('ZADD', KEYS[1], unpack(later))
end
return {now, unpack(due)}
