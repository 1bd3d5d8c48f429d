-- Deletes a task that waits. It must be atomic: asynq's own deletion takes pending tasks too, and with one that was
-- woken since it would take the wake that the others wait for.
--
-- KEYS  1 the task's hash   2 retry   3 scheduled   4 the task's uniqueness lock, if it has one
-- ARGV  1 ID of the task   2 waiters that it waits in   3 sequence in which it keeps its position until it is tried again
--
-- Returns 'dropped', or the state of a task that does not wait there, and that stays; 'gone' when there is none.
--
-- The names and fields of the task's keys are asynq's own (v0.26), as in its deleteTaskCmd.
local task, id, sequence = KEYS[1], ARGV[1], ARGV[3] .. ' '
local found = redis.call('HMGET', task, 'state', 'railtoken:wait', 'railtoken:sequence')
local state = found[1]
local _, _, waiters = glance(found[2])
if not state then
  return 'gone'
end
local parked = state == 'retry' and waiters == ARGV[2]
local comes = state == 'retry' or state == 'scheduled'
if not parked and not (comes and found[3] and string.sub(found[3], 1, #sequence) == sequence) then
  return state
end
if KEYS[4] and redis.call('GET', KEYS[4]) == id then
  redis.call('DEL', KEYS[4])
end
redis.call('ZREM', KEYS[2], id)
redis.call('ZREM', KEYS[3], id)
redis.call('DEL', task)
return 'dropped'
