-- Takes the next task of a queue and begins its run, as asynq's own dequeueCmd (v0.26) does, and reads what its hash
-- has noted of its waiting in the same step.
--
-- KEYS  1 pending   2 paused   3 active   4 lease of the queue   ARGV  1 when the lease ends (s)
--       2 how the names of the queue's tasks begin   3 a name for the run, that no other has
--
-- Returns {ID, message, retry count of the record, conflicts, first conflict (us), '1' when it was woken}, or nil when
-- the queue is empty or paused.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return nil
end
local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
if not id then
  return nil
end
local task = ARGV[2] .. id
redis.call('ZADD', KEYS[4], ARGV[1], id) -- whatever fails from here on, asynq recovers the task
redis.call('HSET', task, 'state', 'active', 'railtoken:run', ARGV[3])
local found = redis.call('HMGET', task, 'msg', 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:woken')
redis.call('HDEL', task, 'pending_since', 'railtoken:woken')
return {id, unpack(found)}
