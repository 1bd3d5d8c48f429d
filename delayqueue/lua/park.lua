-- Notes that a task waits for a key, and counts the conflict (DESIGN 5.1). It must be atomic: the bounds hold at the moment
-- at which the task joins, and a task waits for one key at a time. On a Cluster its parts are steps: see park_steps.go.
--
-- KEYS  1 registry of the key   2 the task's hash (asynq's own)   3 index of all parked tasks
-- ARGV  1 entry of the task   2 its retry count   3 most conflicts   4 most age (us)   5 conflicts before
--       6 first conflict before (us), 0 for none   7 most waiters   8 most parked tasks   9 how long an idle registry is kept (ms)
--       (3, 4, 7 and 8: 0 for no bound)
--       10 when it would look for itself if it were next (ms), 0 for as it is
--
-- Returns {bound, conflicts, first conflict (us), waiters, registry of another key that the task was woken for, or '', how many stand before it}. The
-- bound is '' when the task waits now; 'gone' when there is no such task; else the bound that it has reached: then it does not
-- wait. At the bound on conflicts or age its count begins anew.
local registry, task, index, entry = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local bound, conflicts, first, place, before, now = unpack(note(task, registry, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6],
  ARGV[10]))
local waiters, ahead, swallowed = 0, '', ''

-- Of those who seem to wait some may be gone: deleted or archived by hand. A few are looked at.
local function prune(others, stride)
  for i = 1, #others, stride do
    local _, _, other = parse(others[i])
    if ended(other) == 1 then
      redis.call('ZREM', index, others[i])
      if stride == 1 then
        redis.call('ZREM', registry, others[i])
      end
    end
  end
end

if before ~= '' and before ~= registry then
  if redis.call('ZREM', before, entry) == 0 then
    swallowed = before -- it was woken for that key, and will not be the one to give it back
  end
  if bound == '' then
    stand(task, registry, place)
  end
end
if bound == '' then
  local full = enter(index, entry, now, ARGV[8], ARGV[9])
  if #full > 0 then
    prune(full, 2)
    full = enter(index, entry, now, ARGV[8], ARGV[9])
  end
  if #full > 0 then
    bound = 'total'
  end
end
if bound == '' then
  local behind = conflicts == 1 and 1 or 0
  local joined = join(registry, entry, place, behind, ARGV[7], ARGV[9])
  if #joined > 3 then
    prune({unpack(joined, 4)}, 1)
    joined = join(registry, entry, place, behind, ARGV[7], ARGV[9])
  end
  waiters = joined[1]
  ahead = joined[3]
  if #joined > 3 then
    bound = 'waiters'
  else
    if joined[2] ~= place then
      stand(task, registry, joined[2])
    end
  end
end
if bound ~= '' then
  waiters = discard(registry, entry)[1]
  redis.call('ZREM', index, entry)
  if bound == 'waiters' or bound == 'total' then
    unplace(task)
  elseif bound ~= 'gone' then
    forget(task)
  end
end
return {bound, conflicts, first, waiters, swallowed, ahead}
