-- Deletes a task that is parked. It must be atomic: asynq's own deletion takes pending tasks too, and with one that was
-- woken since it would take the wake that the others wait for.
--
-- KEYS  1 the task's hash   2 retry   3 the task's uniqueness lock, if it has one
-- ARGV  1 ID of the task   2 waiters that it waits in
--
-- Returns 'dropped', or the state of a task that is not parked, or parked for another key, and that stays; 'gone' when
-- there is none.
--
-- The names and fields of the task's keys are asynq's own (v0.26), as in its deleteTaskCmd.
local task, id = KEYS[1], ARGV[1]
local record = redis.call('HMGET', task, 'state', 'railtoken:waiters')
local state = record[1]
if not state then
  return 'gone'
end
if state ~= 'retry' or record[2] ~= ARGV[2] then
  return state
end
if KEYS[3] and redis.call('GET', KEYS[3]) == id then
  redis.call('DEL', KEYS[3])
end
redis.call('ZREM', KEYS[2], id)
redis.call('DEL', task)
return 'dropped'
