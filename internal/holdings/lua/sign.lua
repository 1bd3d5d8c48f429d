-- Notes that a worker lives, and tells which workers have. It must be atomic, so that who looks has been seen, too.
--
-- KEYS  1 the sorted set of the IDs of workers, with the times of their last signs of life (ms)
-- ARGV  1 ID of the worker   2 how long a worker that is silent is remembered (ms)
--       3 how old the signs are at most that are told (ms)   4 how many
--
-- Returns the time (ms) by this server's clock, by which all signs are noted, and a list of each ID and the time of its last sign:
-- one more than asked for if there are more.
--
-- The removal comes first: a Redis that is out of memory refuses a script at its first ZADD, unless it has written before,
-- and then all workers would seem silent.
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%d', ms)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%d', ms - ARGV[2]))
redis.call('ZADD', KEYS[1], now, ARGV[1])
return {now, redis.call('ZRANGEBYSCORE', KEYS[1], string.format('%d', ms - ARGV[3]), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[4] + 1)}
