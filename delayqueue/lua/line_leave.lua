-- Takes tasks out of the line of a key and tells who is first then (DESIGN 5.4). It must be atomic: two that leave at the same time
-- must not both find the other one first, or nobody would be told of the next.
--
-- KEYS  1 line of the key   2 registry of the key
-- ARGV  1 how many of the first to name   2 member that leaves, or ''   3... members that are gone
--
-- A member that leaves stays when it is parked: asynq has given up the run that leaves, and the task has come back meanwhile. Those that are
-- gone are parked no more either.
--
-- Returns {how many tasks are parked on the key, how many of those that are gone were parked, the first in line...}.
local parked = 0
if not redis.call('ZSCORE', KEYS[2], ARGV[2]) then
  redis.call('ZREM', KEYS[1], ARGV[2])
end
if #ARGV > 2 then
  redis.call('ZREM', KEYS[1], unpack(ARGV, 3))
  parked = redis.call('ZREM', KEYS[2], unpack(ARGV, 3))
end
return {redis.call('ZCARD', KEYS[2]), parked, unpack(redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1))}
