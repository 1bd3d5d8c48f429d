-- Puts an entry in the place of another one in a sequence. It must be atomic: neither may be missing when somebody looks who is first.
--
-- KEYS  1 sequence   ARGV  1 entry that goes   2 entry that comes   3 its position
redis.call('ZADD', KEYS[1], 'NX', ARGV[3], ARGV[2])
redis.call('ZREM', KEYS[1], ARGV[1])
return redis.call('PERSIST', KEYS[1])
