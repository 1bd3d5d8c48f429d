-- Takes every key for one owner, or none (DESIGN 3.2 and 3.4). It must be atomic: between the look at a lock and its
-- setting nobody may take it, and a fence counter may rise only together with its grant.
--
-- KEYS  for each key: lock, fence counter, interest mark
-- ARGV  1 owner value   2 TTL (ms)   3 FenceTTL (ms)   4 how long interest is kept (ms), 0 for none
--
-- Returns {1, token, ...} when granted, also when this very owner holds the keys already (the client re-sends a call
-- whose reply was lost), or {0, position of the key that is held, its value, its remaining time (ms), its counter}.
local owner, ttl, fence_ttl, interest = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local count = #KEYS / 3
local held, values = nil, {}
for i = 1, count do
  values[i] = redis.call('GET', KEYS[3 * i - 2])
  if values[i] and values[i] ~= owner and not held then
    held = i
  end
end

if held then
  for i = 1, count do
    if values[i] == owner then
      redis.call('DEL', KEYS[3 * i - 2])
    end
  end
  if interest > 0 and interest > redis.call('PTTL', KEYS[3 * held]) then -- another's may last longer
    redis.call('SET', KEYS[3 * held], '1', 'PX', interest)
  end
  return {0, held, values[held], redis.call('PTTL', KEYS[3 * held - 2]), redis.call('GET', KEYS[3 * held - 1]) or '0'}
end

local now = redis.call('TIME')
local clock = now[1] * 1000000 + now[2]
local reply = {1}
for i = 1, count do
  local token = tonumber(redis.call('GET', KEYS[3 * i - 1]) or '0')
  if values[i] ~= owner then
    token = math.max(token + 1, clock)
    redis.call('SET', KEYS[3 * i - 1], string.format('%.0f', token), 'PX', fence_ttl)
    redis.call('SET', KEYS[3 * i - 2], owner, 'PX', ttl)
  end
  reply[i + 1] = string.format('%.0f', token)
end
return reply
