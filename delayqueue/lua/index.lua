-- Part of the scripts: the index of all parked tasks, which is one sorted set: entry -> when it was last parked (us). Each function is a step
-- of its own on a Cluster, where its first argument is KEYS[1] and the others are ARGV. It must be atomic: the bound holds at the moment at
-- which an entry is added.

-- enter(index, entry, now (us), most or 0, how long an entry counts (ms)) adds an entry, or refreshes it. Returns {}, or when the index is full,
-- a few of its entries, the oldest first, each with its score: those that wait are refreshed, so what is left over becomes the oldest.
local function enter(index, entry, now, most, ttl)
  if redis.call('ZADD', index, now, entry) == 1 then
    redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('(%.0f', tonumber(now) - tonumber(ttl) * 1000))
    if tonumber(most) > 0 and redis.call('ZCARD', index) > tonumber(most) then
      redis.call('ZREM', index, entry)
      return redis.call('ZRANGE', index, 0, 2, 'WITHSCORES')
    end
  end
  redis.call('PEXPIRE', index, ttl)
  return {}
end

-- scores(index, entries...) returns the score of each, '' when it is not there.
local function scores(index, ...)
  local found = {}
  for i, entry in ipairs({...}) do
    found[i] = redis.call('ZSCORE', index, entry) or ''
  end
  return found
end

-- strike(index, entry, score, entry, score, ...) takes out the entries that still have their scores: one that has another was parked anew.
-- Returns how many.
local function strike(index, ...)
  local pairs_, n = {...}, 0
  for i = 1, #pairs_, 2 do
    if redis.call('ZSCORE', index, pairs_[i]) == pairs_[i + 1] then
      n = n + redis.call('ZREM', index, pairs_[i])
    end
  end
  return n
end
