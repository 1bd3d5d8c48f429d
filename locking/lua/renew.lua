-- Extends every key of one owner, or none: token commit, extension and detection of a loss in one (docs/design.md, 3.4, RENEW). It
-- must be atomic: an owner that lost the key between the look and the extension must not extend another's lock.
--
-- KEYS  for each key: lock, fence counter, interest mark
-- ARGV  1 owner value   2 TTL (ms)   3 FenceTTL (ms)   4... the token of each key
--
-- PEXPIRE comes first: a Redis that is out of memory refuses a script at its first SET, unless it has written before.
--
-- Returns 0 when all are extended, or else the position of the first key that is lost; nothing is changed then.
local owner, ttl, fence_ttl = ARGV[1], ARGV[2], ARGV[3]
local count, marks = #KEYS / 3, {} -- of owners that are given up: see abandon.lua
for i = 1, count do
  if redis.call('GET', KEYS[3 * i - 2]) ~= owner then
    return i
  end
  local counter
  counter, marks[i] = string.match(redis.call('GET', KEYS[3 * i - 1]) or '0', '^(%d+)(.*)$')
  if tonumber(counter) > tonumber(ARGV[3 + i]) then
    return i
  end
end
for i = 1, count do
  redis.call('PEXPIRE', KEYS[3 * i - 2], ttl)
  redis.call('SET', KEYS[3 * i - 1], ARGV[3 + i] .. marks[i], 'PX', fence_ttl)
end
return 0
