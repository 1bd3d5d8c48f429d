-- Notes that a worker lives, and tells which workers have. It must be atomic, so that who looks has been seen, too.
--
-- KEYS  1 the sorted set of the IDs of workers, with the times of their last signs of life (ms)
-- ARGV  1 ID of the worker   2 how long a worker that is silent is remembered (ms)
--
-- Returns the time (ms) by this server's clock, by which all signs are noted, then each ID and the time of its last sign.
--
-- The removal comes first: a Redis that is out of memory refuses a script at its first ZADD, unless it has written before,
-- and then all workers would seem silent.
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', now - ARGV[2]))
redis.call('ZADD', KEYS[1], now, ARGV[1])
return {now, unpack(redis.call('ZRANGE', KEYS[1], -1000, -1, 'WITHSCORES'))}
