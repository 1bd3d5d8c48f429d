-- Puts an entry in the place of another one among the waiters of a key, and notes that a wake is owed: nobody knows who has
-- released the key. It must be atomic, so that no look at the owed wakes comes in between.
--
-- KEYS  1 waiters of the key   2 the wakes that are owed in their slot   3 notify key of its lock: the holder must see that tasks wait
-- ARGV  1 entry that goes   2 entry that comes   3 its place   4 how long idle waiters are kept (ms)   5 how long it may wait (ms)
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], 'NX', ARGV[3], ARGV[2])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[5]) then
  redis.call('SET', KEYS[3], '1', 'PX', ARGV[5])
end
local now = redis.call('TIME')
return redis.call('ZADD', KEYS[2], 'NX', string.format('%.0f', math.floor(now[1] * 1000 + now[2] / 1000)), KEYS[1])
