-- Part of the scripts: the wakes that are owed, one sorted set: waiters of a key -> when somebody has to look whether a task
-- has taken the key (ms). It outlives the process that has sent a wake and would look by itself.

-- owe(owed, waiters, how many are left, in how long (ms)) notes a wake that has just been sent, unless it was for the last
-- waiter.
local function owe(owed, waiters, left, delay)
  if left == 0 then
    redis.call('ZREM', owed, waiters)
    return
  end
  redis.call('ZADD', owed, string.format('%d', math.floor(micros() / 1000 + delay)), waiters)
end

-- paid(owed, waiters, in how long at most (ms)) removes a note, unless somebody is to look later: that note is of a wake that
-- was sent since.
local function paid(owed, waiters, within)
  local at = redis.call('ZSCORE', owed, waiters)
  if at and tonumber(at) <= micros() / 1000 + within then
    redis.call('ZREM', owed, waiters)
  end
  return 1
end
