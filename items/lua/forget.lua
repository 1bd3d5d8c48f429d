-- Forgets the results of some items of a task that has ended, so that they run again when it does. It must be atomic:
-- the task may begin to run at any moment, and the results of a task that runs stay.
--
-- KEYS  1 the task's hash
-- ARGV  the index of each item
--
-- Returns the state of the task, or 'gone' when there is none. It has done nothing unless that is 'archived' or
-- 'completed'.
local task = KEYS[1]
local saved = redis.call('HMGET', task, 'state', 'railtoken:items:noted')
local state, noted = saved[1], saved[2]
if state ~= 'archived' and state ~= 'completed' then
  return state or 'gone'
end
if noted then
  for i = 1, #ARGV do
    local index = tonumber(ARGV[i])
    local at, value = math.floor(index / 8) + 1, 2 ^ (index % 8)
    local byte = string.byte(noted, at) or 0
    if math.floor(byte / value) % 2 == 1 then
      noted = string.sub(noted, 1, at - 1) .. string.char(byte - value) .. string.sub(noted, at + 1)
      redis.call('HDEL', task, 'railtoken:item:' .. ARGV[i])
    end
  end
  if string.find(noted, '[^%z]') then
    redis.call('HSET', task, 'railtoken:items:noted', noted)
  else
    redis.call('HDEL', task, 'railtoken:items:noted')
  end
end
return state
