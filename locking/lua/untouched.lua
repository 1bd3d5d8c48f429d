-- Reads the locks and fence counters of an expired lease. It only reads; it is a script because go-redis may send a plain
-- MGET to a replica, which is behind.
--
-- KEYS  for each key: lock, fence counter   ARGV  none
--
-- Returns the values, in the order of KEYS.
return redis.call('MGET', unpack(KEYS))
