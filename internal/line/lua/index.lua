-- Part of the scripts: the index of all parked tasks, which is one sorted set: entry -> when it was last parked (us).
-- Each function is a step of its own on a Cluster, where its first argument is KEYS[1] and the others are ARGV. It must
-- be atomic: the bound holds at the moment at which an entry is added.

-- enter(index, entry, now (us), most or 0, how long an entry counts (ms)) adds an entry, or refreshes it. Returns {},
-- or when the index is full, a few of its entries, the oldest first: those that wait are refreshed, so what is left
-- over becomes the oldest.
local function enter(index, entry, now, most, ttl)
  if redis.call('ZADD', index, now, entry) == 1 then
    redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('(%.0f', tonumber(now) - tonumber(ttl) * 1000))
    if tonumber(most) > 0 and redis.call('ZCARD', index) > tonumber(most) then
      redis.call('ZREM', index, entry)
      return redis.call('ZRANGE', index, 0, 2)
    end
  end
  redis.call('PEXPIRE', index, ttl)
  return {}
end
