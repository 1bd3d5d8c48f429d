-- Extends every key of one owner, or none: token commit, extension and detection of a loss in one (docs/design.md, 3.4,
-- RENEW). It must be atomic: an owner that loses the key between the look and the extension must not extend the lock of
-- another one.
--
-- KEYS  for each key: lock, fence counter, subscription
-- ARGV  1 owner value   2 TTL (ms)   3 FenceTTL (ms)   4... the token of each key
--
-- PEXPIRE comes first: a Redis that is out of memory refuses a script at its first SET, unless it has written before.
--
-- Returns 0 when all are extended, else the position of the first lost key; then nothing has changed.
local owner, ttl, fence_ttl = ARGV[1], ARGV[2], ARGV[3]
local count, marks = #KEYS / 3, {} -- of abandoned owners: see abandon.lua
for i = 1, count do
  if redis.call('GET', KEYS[3 * i - 2]) ~= owner then
    return i
  end
  local counter
  counter, marks[i] = string.match(redis.call('GET', KEYS[3 * i - 1]) or '0', '^(%d+)(.*)$')
  if not counter then
    return redis.error_reply('FOREIGN no fence counter has the value of ' .. KEYS[3 * i - 1])
  end
  if tonumber(counter) > tonumber(ARGV[3 + i]) then
    return i
  end
end
for i = 1, count do
  redis.call('PEXPIRE', KEYS[3 * i - 2], ttl)
  redis.call('SET', KEYS[3 * i - 1], ARGV[3 + i] .. marks[i], 'PX', fence_ttl)
end
return 0
