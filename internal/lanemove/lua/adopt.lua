-- Has a task name the sequence of its key as it is with lanes. It must be atomic: the task may join or leave it at any moment.
--
-- KEYS  1 the task's hash   ARGV  1 sequence without lanes   2 sequence with lanes
--
-- Returns 1 when the task names that with lanes now, else 0: then its entry is left over.
local mark = redis.call('HGET', KEYS[1], 'railtoken:sequence')
if not mark then
  return 0
elseif string.sub(mark, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' then
  redis.call('HSET', KEYS[1], 'railtoken:sequence', ARGV[2] .. string.sub(mark, #ARGV[1] + 1))
  return 1
end
return string.sub(mark, 1, #ARGV[2] + 1) == ARGV[2] .. ' ' and 1 or 0
