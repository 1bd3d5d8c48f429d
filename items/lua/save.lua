-- Saves the results of items in fields of asynq's hash of their task, so that they are deleted with the task. The field
-- railtoken:items has the head (the number of items and a hash of their keys) and a bit for each item that is done. An
-- item with another result has a record in the field railtoken:item:<index>, and a bit in railtoken:items:noted. It
-- must be atomic because two runs of a task may save at the same time, after asynq has given one of them up. An item
-- that is done stays done.
--
-- KEYS  1 the task's hash
-- ARGV  1 the head   2 the number of items   3 how many items are now done   then the index of each of these
--       then the index and the record of each item that now has another result
--
-- Returns 'saved'; 'gone' when there is no such task; or the other head that the task has.
local task, head, dones = KEYS[1], ARGV[1], tonumber(ARGV[3])
local saved = redis.call('HMGET', task, 'state', 'railtoken:items', 'railtoken:items:noted')
if not saved[1] then
  return 'gone'
end
local empty = string.rep('\0', math.ceil(tonumber(ARGV[2]) / 8))
local done, noted = empty, saved[3] or ''
if saved[2] then
  if string.sub(saved[2], 1, #head) ~= head then
    return string.sub(saved[2], 1, -1 - #empty)
  end
  done = string.sub(saved[2], #head + 1)
end

-- has(bits, index) returns whether the bit is set, its byte and the value of the bit in that.
local function has(bits, index)
  local byte, value = string.byte(bits, math.floor(index / 8) + 1) or 0, 2 ^ (index % 8)
  return math.floor(byte / value) % 2 == 1, byte, value
end

-- set(bits, index, yes) returns the bits with one of them set or cleared.
local function set(bits, index, yes)
  local is, byte, value = has(bits, index)
  if is == yes then
    return bits
  end
  local at = math.floor(index / 8) + 1
  return string.sub(bits, 1, at - 1) .. string.char(byte + (yes and value or -value)) .. string.sub(bits, at + 1)
end

for i = 4, 3 + dones do
  local index = tonumber(ARGV[i])
  done = set(done, index, true)
  if has(noted, index) then
    noted = set(noted, index, false)
    redis.call('HDEL', task, 'railtoken:item:' .. ARGV[i])
  end
end
for i = 4 + dones, #ARGV, 2 do
  local index = tonumber(ARGV[i])
  if not has(done, index) then
    noted = set(noted == '' and empty or noted, index, true)
    redis.call('HSET', task, 'railtoken:item:' .. ARGV[i], ARGV[i + 1])
  end
end
redis.call('HSET', task, 'railtoken:items', head .. done)
if noted ~= (saved[3] or '') then
  if noted == empty then
    redis.call('HDEL', task, 'railtoken:items:noted')
  else
    redis.call('HSET', task, 'railtoken:items:noted', noted)
  end
end
return 'saved'
