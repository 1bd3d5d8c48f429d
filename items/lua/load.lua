-- Reads the saved progress of a task of items.
--
-- KEYS  1 the task's hash
--
-- Returns {} when there is no such task, else {its state, the field railtoken:items or '', the record of each item that
-- has one, ...}.
local task = KEYS[1]
local saved = redis.call('HMGET', task, 'state', 'railtoken:items', 'railtoken:items:noted')
if not saved[1] then
  return {}
end
local reply, noted = {saved[1], saved[2] or ''}, saved[3] or ''
for at = 1, #noted do
  local byte, index = string.byte(noted, at), (at - 1) * 8
  while byte > 0 do
    if byte % 2 == 1 then
      reply[#reply + 1] = redis.call('HGET', task, 'railtoken:item:' .. index) or ''
    end
    byte, index = math.floor(byte / 2), index + 1
  end
end
return reply
