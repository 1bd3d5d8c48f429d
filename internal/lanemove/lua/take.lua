-- Takes a task from the set in which it is, and notes where it goes. It must be atomic: a server may fetch the task at any moment.
--
-- KEYS  1 the task's hash   2 its set   3 record of the queue
-- ARGV  1 number of the move   2 ID   3 its state   4 what else the record notes   5 the SHA-1 of what was read: each value with its
--       length and a colon before it   6... the fields that were read
--
-- Returns 'taken' and the task's score in its set; 'changed' when it is not there, or not as it was read; 'superseded' when a
-- later move has begun.
if tonumber(redis.call('HGET', KEYS[3], 'move') or '0') > tonumber(ARGV[1]) then
  return {'superseded', '0'}
end
local parts = {}
for i = 6, #ARGV do
  local value = redis.call('HGET', KEYS[1], ARGV[i])
  if not value then
    return {'changed', '0'}
  end
  parts[#parts + 1] = #value .. ':' .. value
end
if redis.call('HLEN', KEYS[1]) ~= #parts or redis.sha1hex(table.concat(parts)) ~= ARGV[5] then
  return {'changed', '0'}
end
local score = '0'
if ARGV[3] == 'pending' then
  if redis.call('LREM', KEYS[2], -1, ARGV[2]) == 0 then -- from the head of the queue
    return {'changed', '0'}
  end
else
  score = redis.call('ZSCORE', KEYS[2], ARGV[2])
  if not score then
    return {'changed', '0'}
  end
  redis.call('ZREM', KEYS[2], ARGV[2])
end
redis.call('HSET', KEYS[3], 't:' .. ARGV[2], ARGV[3] .. ' ' .. score .. ' ' .. ARGV[4])
return {'taken', score}
