-- Makes a copy the task. It must be atomic: the copy runs once, however often this is called. Before it stands ready.lua of package
-- lanes.
--
-- KEYS  1 hash of the copy   2 its set   3 record of the lane   4 its uniqueness lock, if the task has one
-- ARGV  1 number of the move   2 ID   3 queue in which the task was   4 its state   5 its score in the set
--       6 how long its uniqueness lock lives (ms)
--
-- Returns 'done'; 'gone' when there is no copy; 'superseded' when a later move has begun.
if tonumber(redis.call('HGET', KEYS[3], 'move') or '0') > tonumber(ARGV[1]) then
  return 'superseded'
elseif redis.call('HEXISTS', KEYS[3], 't:' .. ARGV[2]) == 1 then
  return 'done'
elseif redis.call('HGET', KEYS[1], 'railtoken:copy-of') ~= ARGV[3] then
  return 'gone'
end
redis.call('HDEL', KEYS[1], 'railtoken:copy-of')
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[3], 't:' .. ARGV[2], '1')
if KEYS[4] then -- a task that was enqueued in the lane meanwhile keeps it
  redis.call('SET', KEYS[4], ARGV[2], 'PX', ARGV[6], 'NX')
end
if ARGV[4] == 'pending' then
  redis.call('LPUSH', KEYS[2], ARGV[2])
  ready(KEYS[2], 1)
else
  redis.call('ZADD', KEYS[2], ARGV[5], ARGV[2])
end
return 'done'
