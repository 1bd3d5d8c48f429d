-- Puts a task back at the head of its queue that was taken and has not begun, as asynq's own requeueCmd (v0.26) does, and
-- releases its locks. It must be atomic: the task may be in another run by now, and no task may have locks that does not
-- run.
--
-- KEYS  1 the task's hash   2 active   3 lease   4 pending of its queue   5... lock, fence counter and subscription of
--       each key
-- ARGV  1 its run   2 ID   3 now (ns)   4 1 when it was woken   5 owner of the locks
--
-- Returns how many of the locks have a subscription.
local answer = release(KEYS, 5, #KEYS, ARGV[5])
local subscribed = answer ~= 0 and answer[2] or 0
if redis.call('HGET', KEYS[1], 'pending_since') ~= ARGV[1] or redis.call('LREM', KEYS[2], 0, ARGV[2]) == 0 then
  return subscribed
end
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('RPUSH', KEYS[4], ARGV[2])
redis.call('HSET', KEYS[1], 'state', 'pending', 'pending_since', ARGV[3])
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'railtoken:woken', '1') -- when is not known any more
end
ready(KEYS[4], 1)
return subscribed
