-- Takes tasks out of the line of a key, and out of those that are parked on it, and tells who is first then (DESIGN 5.4). It must be atomic:
-- two that leave at the same time must not both find the other one first, or nobody would be told of the next.
--
-- KEYS  1 line of the key   2 registry of the key
-- ARGV  1 how many of the first to name   2... members that leave
--
-- Returns {how many tasks are parked on the key, how many of those that leave were parked, the first in line...}. A task that its own timer
-- has brought back is parked still when it leaves: nobody has woken it.
redis.call('ZREM', KEYS[1], unpack(ARGV, 2))
local parked = redis.call('ZREM', KEYS[2], unpack(ARGV, 2))
return {redis.call('ZCARD', KEYS[2]), parked, unpack(redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1))}
