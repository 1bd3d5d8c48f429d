-- Ends a task that does not run, or leaves word for its run. It must be atomic: a task that has just begun to run is never
-- ended beside its run.
--
-- KEYS  1 the task's hash   2 pending   3 retry   4 scheduled   5 archived   6 the key that exists while somebody hears of ends
--       7 marks of ends   8 the task's uniqueness lock, if it has one
-- ARGV  1 ID of the task   2 what is added to asynq's message of a task that is archived, or '' to delete the task
--       3 now (s)   4 word for the run of an active task, or '' to leave that alone
--       5 and 6 waiters and sequence: only a task is ended that is parked there, or keeps its position there until it is tried
--       again; both '' for any task   7 the mark of its end, without the message   8 why it ends
--
-- Returns {'ended', the state that it had}; {'told', the name of the run, or '' if a server without railtoken runs it}; or {the
-- state of a task that stays}, 'gone' when there is none.
--
-- The names and fields of the task's keys are asynq's own (v0.26), as in its deleteTaskCmd and archiveTaskCmd.
local task, id, added = KEYS[1], ARGV[1], ARGV[2]
local found = redis.call('HMGET', task, 'state', 'msg', 'railtoken:wait', 'railtoken:sequence', 'pending_since')
local state, message = found[1], found[2] or '' -- a damaged task can still be dropped
if not state then
  return {'gone'}
end
if ARGV[5] ~= '' then
  local _, _, waiters = glance(found[3])
  local sequence = ARGV[6] .. ' '
  local comes = state == 'retry' or state == 'scheduled'
  if not (state == 'retry' and waiters == ARGV[5]) and
    not (comes and found[4] and string.sub(found[4], 1, #sequence) == sequence) then
    return {state}
  end
end
if state == 'active' and ARGV[4] ~= '' then
  if found[5] then
    redis.call('HSET', task, 'railtoken:cancel', ARGV[4])
  end
  return {'told', found[5] or ''}
end
if state == 'pending' then
  redis.call('LREM', KEYS[2], 0, id)
elseif state == 'retry' then
  redis.call('ZREM', KEYS[3], id)
elseif state == 'scheduled' then
  redis.call('ZREM', KEYS[4], id)
else
  return {state}
end
if string.sub(message, -#waiting) == waiting then
  message = string.sub(message, 1, -#waiting - 1)
end
notice(redis.call('HGET', task, 'railtoken:awaited'), task)
if redis.call('EXISTS', KEYS[6]) == 1 then
  mark(KEYS[7], ARGV[7] .. message .. added, 0, task, added ~= '' and ARGV[3] .. ' ' .. ARGV[8] or '')
end
if added == '' then
  if KEYS[8] and redis.call('GET', KEYS[8]) == id then
    redis.call('DEL', KEYS[8])
  end
  redis.call('DEL', task)
  return {'ended', state}
end
redis.call('ZADD', KEYS[5], ARGV[3], id)
redis.call('HSET', task, 'state', 'archived', 'msg', message .. added)
redis.call('HDEL', task, 'railtoken:cancel')
forget(task)
return {'ended', state}
