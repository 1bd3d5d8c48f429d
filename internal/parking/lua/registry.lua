-- Part of the scripts: the registry of a key, in the slot of the key. Each function is a step of its own on a Cluster, where its first
-- argument is KEYS[1] and the others are ARGV. It must be atomic: of two who take an entry out, one alone has it.

-- discard(registry, entries...) takes entries out. Returns {how many are left, the entries that this call took out...}.
local function discard(registry, ...)
  local mine = {0}
  for _, entry in ipairs({...}) do
    if redis.call('ZREM', registry, entry) == 1 then
      mine[#mine + 1] = entry
    end
  end
  mine[1] = redis.call('ZCARD', registry)
  return mine
end

-- join(registry, entry, place, 1 to be behind those who came before, most waiters or 0, how long an idle registry is kept (ms)) puts an entry
-- in line; one that is in it stays where it is. Returns {waiters, place, how many stand before it}, and when the waiters are full {waiters, place, ''}
-- and a few entries behind them, chosen at random: their tasks may be gone. Each call looks at few, or a full registry would cost all who meet it.
local function join(registry, entry, place, behind, most, ttl)
  local score = redis.call('ZSCORE', registry, entry)
  local waiters = redis.call('ZCARD', registry)
  if not score then
    if tonumber(most) > 0 and waiters >= tonumber(most) then
      return {waiters, place, '', unpack(redis.call('ZRANDMEMBER', registry, 3))}
    end
    -- Places are given by the first conflict; of two in the same microsecond the earlier arrival has the earlier place.
    score = place
    local last = redis.call('ZRANGE', registry, -1, -1, 'WITHSCORES')
    if tonumber(behind) == 1 and last[2] and tonumber(last[2]) >= tonumber(place) then
      score = string.format('%.0f', tonumber(last[2]) + 1)
    end
    redis.call('ZADD', registry, score, entry)
    waiters = waiters + 1
  end
  redis.call('PEXPIRE', registry, ttl)
  return {waiters, score, tostring(redis.call('ZRANK', registry, entry))}
end

-- look(registry, entry of a leaver or '', the only entry asked for or '', how many to pass over unseen, how many to look at) takes the
-- leaver out. Returns {how many are left, the entries in line...}; of the only one itself, when it is in line.
local function look(registry, leaver, only, offset, most)
  if leaver ~= '' then
    redis.call('ZREM', registry, leaver)
  end
  local entries
  if only == '' then
    entries = redis.call('ZRANGE', registry, offset, offset + most - 1)
  else
    entries = redis.call('ZSCORE', registry, only) and {only} or {}
  end
  return {redis.call('ZCARD', registry), unpack(entries)}
end
