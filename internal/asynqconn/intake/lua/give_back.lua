-- Puts a task back at the head of its queue that was taken and has not begun, as asynq's own requeueCmd (v0.26) does.
-- It must be atomic: the task may be in another run by now.
--
-- KEYS  1 the task's hash   2 active   3 lease   4 pending of its queue
-- ARGV  1 its run   2 ID   3 now (ns)   4 1 when it was woken
--
-- Returns 1, or 0 when the run is over.
if redis.call('HGET', KEYS[1], 'railtoken:run') ~= ARGV[1] or redis.call('LREM', KEYS[2], 0, ARGV[2]) == 0 then
  return 0
end
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('RPUSH', KEYS[4], ARGV[2])
redis.call('HSET', KEYS[1], 'state', 'pending', 'pending_since', ARGV[3])
redis.call('HDEL', KEYS[1], 'railtoken:run')
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'railtoken:woken', '1')
end
return 1
