-- Names the move of a task (DESIGN 5.3). The name stays in asynq's hash of the task and goes with it, so that a later task with the
-- same ID is another one. It must be atomic: two runs of a task that both move it must use the same name. On a Cluster its parts are
-- steps: see move_steps.go.
--
-- KEYS  1 the task's hash
-- ARGV  1 a new name   2 the name under which the task itself was moved, or ''   3 who it is on a tombstone (claim.lua)
--
-- Returns {name, conflicts of the task, its first conflict (us)}. A name under which this very task has run is used up: what moves
-- then is a later attempt (claim.go tells how the task knows). Returns nil when there is no such task, or another copy of it has run.
local found = named(KEYS[1], ARGV[2])
if #found == 0 then
  return false
end
local name, free = found[1], ARGV[1]
if name ~= '' then
  local ran = whose('railtoken:moved:{' .. name .. '}', ARGV[3])
  if ran == 'another' or ran == 'own' and found[4] ~= name then
    return false
  elseif ran == 'nobody' then
    free = name
  end
end
return {rename(KEYS[1], ARGV[2], name, free), found[2], found[3]}
