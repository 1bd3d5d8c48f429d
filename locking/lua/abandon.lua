-- Gives back an unanswered acquire call, which may have been granted or refused, or may yet arrive (docs/design.md,
-- 3.10). It deletes the locks that the call has taken. When there are none, or when the owner has sent several such
-- calls, so that they may be those of another one, it marks the owner as abandoned, and acquire.lua refuses it. It must
-- be atomic: an acquire call between the look and the mark would be granted to no one. Values of other programs stay.
--
-- A mark lies in the fence counter, which acquire.lua reads anyway: "counter id@expiry id@expiry ...", where id is the
-- beginning of the owner value and expiry is in seconds. The newest 256 are kept; acquire.lua and renew.lua carry them
-- on.
--
-- KEYS  for each key: lock, fence counter, subscription
-- ARGV  1 owner value   2 how long the owner is refused (s)   3 FenceTTL (ms)
--       4 1 when several acquire calls were sent   5 1 when this call was sent before
--
-- Returns what release.lua does: 0, or {0, number of subscriptions to the locks that it, or an earlier copy, has deleted}.
local owner, subscribed, taken = ARGV[1], 0, false
for i = 1, #KEYS, 3 do
  local deleted = redis.pcall('GET', KEYS[i]) == owner
  if deleted then
    taken = true
    redis.call('DEL', KEYS[i])
  end
  if (deleted or ARGV[5] == '1') and redis.call('EXISTS', KEYS[i + 2]) == 1 then
    subscribed = subscribed + 1
    redis.pcall('PUBLISH', KEYS[i], '1')
  end
end
if not taken or ARGV[4] == '1' then
  local now, id = tonumber(redis.call('TIME')[1]), ' ' .. string.sub(owner, 1, 16) .. '@'
  local most = math.max(tonumber(ARGV[3]), ARGV[2] * 1000)
  for i = 2, #KEYS, 3 do
    local value = redis.pcall('GET', KEYS[i]) or '0'
    local counter, marks = string.match(type(value) == 'string' and value or '', '^(%d+)(.*)$')
    if counter and not string.find(marks, id, 1, true) then
      local kept = {}
      for mark, expiry in string.gmatch(marks, '( [^ ]+@(%d+))') do
        if tonumber(expiry) > now then
          kept[#kept + 1] = mark
        end
      end
      kept[#kept + 1] = id .. string.format('%.0f', now + ARGV[2])
      marks = table.concat(kept, '', math.max(1, #kept - 255))
      redis.call('SET', KEYS[i], counter .. marks, 'PX', string.format('%.0f', most))
    end
  end
end
if subscribed == 0 then
  return 0
end
return {0, subscribed}
