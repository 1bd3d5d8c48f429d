-- Names the move of a task, once: the name stays in asynq's hash of the task and goes with it, so that a later task with the
-- same ID is another one. It must be atomic: two runs of a task that both move it must use the same name.
--
-- KEYS  1 the task's hash   ARGV  1 a new name
--
-- Returns the name, or nil when there is no such task.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
redis.call('HSETNX', KEYS[1], 'railtoken:move', ARGV[1])
return redis.call('HGET', KEYS[1], 'railtoken:move')
