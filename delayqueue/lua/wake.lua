-- Moves the next waiter of a key to the head of its queue (DESIGN 5.2). It must be atomic: a waiter that leaves the registry
-- is on its way to run, or a wake would be swallowed.
--
-- KEYS  1 registry of the key
-- ARGV  1 member of the task that gives the key back, or ''   2 how many waiters that are still active to pass over
--       3 now (ns)   4 most waiters to look at
--
-- Returns {outcome, member, waiters left}. The outcome is 'woken'; 'busy' when the next waiter is still active, that is, about
-- to park: call again in a moment; 'none' when nobody else waits; 'more' when all that it looked at were gone: call again.
--
-- The names and fields of the task's keys are asynq's own (v0.26): hash asynq:{queue}:t:id with field state, sorted sets
-- asynq:{queue}:retry and :scheduled, list asynq:{queue}:pending whose right end is its head.
local registry, leaver, pass, now, most = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if leaver ~= '' then
  redis.call('ZREM', registry, leaver)
end
local looked = redis.call('ZRANGE', registry, 0, most - 1)
for _, member in ipairs(looked) do
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local queue, id = string.sub(rest, 1, tonumber(size)), string.sub(rest, tonumber(size) + 1)
  local prefix = 'asynq:{' .. queue .. '}:'
  local task = prefix .. 't:' .. id
  local state = redis.call('HGET', task, 'state')
  local moved = false
  if state == 'active' then
    if pass <= 0 then
      return {'busy', member, redis.call('ZCARD', registry)}
    end
    pass = pass - 1
  elseif state == 'retry' or state == 'scheduled' then
    moved = redis.call('ZREM', prefix .. state, id) == 1
  elseif state == 'pending' then
    -- Its timer brought it back, or an operator did: to the tail. It was pushed lately, so it is found near that end.
    moved = redis.call('LREM', prefix .. 'pending', 1, id) == 1
  end
  if state ~= 'active' then
    redis.call('ZREM', registry, member)
    if moved then
      redis.call('RPUSH', prefix .. 'pending', id)
      redis.call('HSET', task, 'state', 'pending', 'pending_since', now)
      return {'woken', member, redis.call('ZCARD', registry)}
    end
  end
end
return {#looked == most and 'more' or 'none', '', redis.call('ZCARD', registry)}
