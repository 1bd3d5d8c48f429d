-- Part of the scripts: the waiters of a key, in the slot of the key. Each function is a step of its own on a Cluster,
-- where its first argument is KEYS[1] and the others are ARGV. It must be atomic: of two calls that take an entry
-- out, only one has it.

-- discard(waiters, entries...) takes entries out. Returns {how many are left, the entries that this call took out...}.
local function discard(waiters, ...)
  local mine = {0}
  for _, entry in ipairs({...}) do
    if redis.call('ZREM', waiters, entry) == 1 then
      mine[#mine + 1] = entry
    end
  end
  mine[1] = redis.call('ZCARD', waiters)
  return mine
end

-- join(waiters, entry, place, 1 to be behind those that came before, most waiters or 0, how long an idle set of waiters
-- is kept (ms)) adds an entry; one that is there stays where it is. Returns {waiters, place, how many stand before
-- it}, and when there is no room {waiters, place, ''} and a few entries, chosen at random: their tasks may be gone.
-- They are few, so that a full set does not cost every task that meets it much.
local function join(waiters, entry, place, behind, most, ttl)
  local score = redis.call('ZSCORE', waiters, entry)
  local count = redis.call('ZCARD', waiters)
  if score and tonumber(place) < 0 and tonumber(score) >= 0 then -- it is among the foremost now
    score = place
    redis.call('ZADD', waiters, score, entry)
  end
  if not score then
    if tonumber(most) > 0 and count >= tonumber(most) then
      return {count, place, '', unpack(redis.call('ZRANDMEMBER', waiters, 3))}
    end
    -- The place is the time of the first conflict; of two in the same microsecond the earlier arrival comes first.
    score = place
    local last = redis.call('ZRANGE', waiters, -1, -1, 'WITHSCORES')
    if tonumber(behind) == 1 and last[2] and tonumber(last[2]) >= tonumber(place) then
      score = string.format('%.0f', tonumber(last[2]) + 1)
    end
    redis.call('ZADD', waiters, score, entry)
    count = count + 1
  end
  redis.call('PEXPIRE', waiters, ttl)
  return {count, score, tostring(redis.call('ZRANK', waiters, entry))}
end

-- look(waiters, entry of a leaver or '', the only entry asked for or '', how many to pass over unseen, how many to look
-- at) takes the leaver out. Returns {how many are left, the entries in order...}; of the only one itself, when it is
-- there.
local function look(waiters, leaver, only, offset, most)
  if leaver ~= '' then
    redis.call('ZREM', waiters, leaver)
  end
  local entries
  if only == '' then
    entries = redis.call('ZRANGE', waiters, offset, offset + most - 1)
  else
    entries = redis.call('ZSCORE', waiters, only) and {only} or {}
  end
  return {redis.call('ZCARD', waiters), unpack(entries)}
end

-- laneOf(waiters) returns the hash tag of the lane of a key, nil if it is in none: @, the number of the lane, - and a suffix.
local function laneOf(waiters)
  return string.match(waiters, '{(@[^}]*)}.')
end

-- The index of parked tasks is one sorted set, or one for each lane: entry -> when it was last parked (us). The bound holds at
-- the moment at which an entry is added.

-- indexOf(parked, waiters) returns the index of the tasks that are parked on a key, whose name begins with parked.
local function indexOf(parked, waiters)
  local lane = laneOf(waiters)
  return lane and parked .. ':{' .. lane .. '}' or parked
end

-- apart(lane, prefix) returns whether the tasks of a queue are in another lane than a key. No other queue has a name of this form.
local function apart(lane, prefix)
  return lane and string.match(prefix, '.*@(%d+)%-%w%w%w}:$') ~= string.match(lane, '^@(%d+)%-')
end

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
