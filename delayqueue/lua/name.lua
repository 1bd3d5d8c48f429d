-- Names the move of a task (DESIGN 5.3). The name stays in asynq's hash of the task and goes with it, so that a later task with the
-- same ID is another one. It must be atomic: two runs of a task that both move it must use the same name.
--
-- KEYS  1 the task's hash
-- ARGV  1 a new name   2 the name under which the task itself was moved, or ''   3 who it is on a tombstone (claim.lua)
--
-- Returns {name, conflicts of the task, its first conflict (us)}. A name under which this very task has run is used up: what moves
-- then is a later attempt. Returns nil when there is no such task, or another copy of it has run.
local task, who = KEYS[1], ARGV[3]
if redis.call('EXISTS', task) == 0 then
  return false
end
local name = redis.call('HGET', task, 'railtoken:move') or ARGV[2]
if name == '' then
  name = ARGV[1]
else
  local ran = redis.call('GET', 'railtoken:moved:{' .. name .. '}')
  if ran == who then
    name = ARGV[1]
  elseif ran then
    return false
  end
end
redis.call('HSET', task, 'railtoken:move', name)
local record = redis.call('HMGET', task, 'railtoken:conflicts', 'railtoken:first')
return {name, record[1] or '0', record[2] or '0'}
