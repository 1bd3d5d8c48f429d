-- Runs an archived task again, with a fresh record of conflicts (record.lua). It must be atomic: a task that is run
-- twice at the same time runs once, and one that stays archived keeps its reason.
--
-- KEYS  1 the task's hash   2 archived   3 pending   ARGV  1 ID of the task   2 now (ns)
--
-- Returns 'archived' when it has run it, or the state of a task that is not archived; 'gone' when there is none.
--
-- The names and fields of the task's keys are asynq's own (v0.26), as in its runTaskCmd.
local task, id = KEYS[1], ARGV[1]
local state = redis.call('HGET', task, 'state')
if state ~= 'archived' then
  return state or 'gone'
end
redis.call('ZREM', KEYS[2], id)
redis.call('HDEL', task, 'result')
forget(task)
redis.call('HSET', task, 'state', 'pending', 'pending_since', ARGV[2])
redis.call('LPUSH', KEYS[3], id)
ready(KEYS[3], 1)
return state
