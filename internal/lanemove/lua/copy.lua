-- Copies a task into its lane, in no set. It must be atomic: a producer may enqueue a task with the same ID at any moment.
--
-- KEYS  1 hash of the copy   2 record of the lane
-- ARGV  1 number of the move   2 ID   3 queue in which the task is   4 how long the copy is kept (ms)   5... fields and their values
--
-- Returns 'copied'; 'done' when the copy has been activated; 'occupied' when a task of the lane has the ID; 'superseded' when a later
-- move has begun.
if tonumber(redis.call('HGET', KEYS[2], 'move') or '0') > tonumber(ARGV[1]) then
  return 'superseded'
elseif redis.call('HEXISTS', KEYS[2], 't:' .. ARGV[2]) == 1 then
  return 'done'
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  if redis.call('HGET', KEYS[1], 'railtoken:copy-of') ~= ARGV[3] then
    return 'occupied'
  end
  redis.call('DEL', KEYS[1])
end
for i = 5, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'railtoken:copy-of', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 'copied'
