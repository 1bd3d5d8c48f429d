-- Deletes a task that is parked. It must be atomic: asynq's own deletion takes pending tasks too, and with one that was woken since
-- it would take the wake that the others wait for.
--
-- KEYS  1 the task's hash   ARGV  1 ID of the task   2 what begins asynq's keys of its queue   3 registry that it waits in
--
-- Returns 'dropped', or the state of a task that is not parked, or parked for another key, and that stays; 'gone' when there is none.
--
-- The names and fields of the task's keys are asynq's own (v0.26), as in its deleteTaskCmd.
local task, id, prefix = KEYS[1], ARGV[1], ARGV[2]
local record = redis.call('HMGET', task, 'state', 'unique_key', 'railtoken:registry')
local state, unique = record[1], record[2]
if not state then
  return 'gone'
end
if state ~= 'retry' and state ~= 'scheduled' or record[3] ~= ARGV[3] then
  return state
end
if unique and unique ~= '' and redis.call('GET', unique) == id then
  redis.call('DEL', unique)
end
redis.call('ZREM', prefix .. state, id)
redis.call('DEL', task)
return 'dropped'
