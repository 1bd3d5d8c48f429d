-- Takes the lock of one key away from its owner, for the owner of a Depose (docs/design.md, 3.11). It stands before
-- acquire.lua, which then takes the lock as if it had expired. It must be atomic with it: the key must not be free in
-- between, or the next holder could come before the resource refuses this one.
--
-- An owner is named by the first 16 digits of the SHA-1 of its value. The record says by which owner the lock was taken:
-- a Depose that is repeated takes it from that one. The deposed owner is marked as given up (see abandon.lua) whatever
-- the lock is: a late call of it must not get the key when it is free again.
--
-- KEYS  those of acquire.lua, and the record of the deposed owner
-- ARGV  those of acquire.lua, and at the end
--       1 name of the owner   2 its mark, or nothing   3 what the owner is told   4 lifetime of the record (ms)
--       5 how long late calls of the owner are refused (s)   6 channel
local function take_away()
  local channel, lateness, lifetime = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  local notice, mark, expected = table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)
  local record = table.remove(KEYS)
  local lock, fence = KEYS[1], KEYS[2]
  local value = redis.call('GET', lock)
  if value == ARGV[1] then
    return nil
  end
  local counter, marks = string.match(redis.call('GET', fence) or '0', '^(%d+)(.*)$')
  if not counter then
    return redis.error_reply('FOREIGN no fence counter has the value of ' .. fence)
  end
  if mark ~= '' and not string.find(marks, ' ' .. mark .. '@', 1, true) then
    local now = tonumber(redis.call('TIME')[1])
    marks = marks .. ' ' .. mark .. '@' .. string.format('%.0f', now + lateness)
  end
  local left = redis.call('PTTL', fence) -- the holders of the key may keep it for longer
  if left > tonumber(ARGV[3]) then
    ARGV[3] = string.format('%.0f', left)
  end
  local name = value and string.sub(redis.sha1hex(value), 1, 16)
  local another = name and name ~= expected and name ~= string.sub(redis.call('GET', record) or '', 1, 16)
  redis.call('SET', fence, counter .. marks, 'PX', ARGV[3])
  if another then
    return nil
  end
  redis.call('DEL', lock)
  redis.call('SET', record, string.sub(redis.sha1hex(ARGV[1]), 1, 16) .. notice, 'PX', lifetime)
  redis.pcall('PUBLISH', channel, expected)
  return nil
end
local fault = take_away()
if fault then
  return fault
end
