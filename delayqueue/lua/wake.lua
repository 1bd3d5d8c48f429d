-- Moves the next waiters of a key to the heads of their queues (DESIGN 5.2). It must be atomic: a waiter that leaves the registry
-- is on its way to run, or a wake would be swallowed.
--
-- KEYS  1 registry of the key
-- ARGV  1 member of the task that gives the key back, or ''   2 1 to pass over waiters that are still active, else 0
--       3 now (ns)   4 how many waiters to pass over unseen   5 how many to look at   6 how many to wake at most
--
-- Returns {outcome, waiters left, members that were woken...}. The outcome is 'woken'; 'busy' when nobody was, since the next waiter is
-- still active, that is, about to park, or all are that were passed over: call again in a moment; 'none' when nobody else waits; or 'more' when nobody could be woken of those that
-- it looked at: call again, and pass over as many as the second value says.
--
-- The names and fields of the task's keys are asynq's own (v0.26): hash asynq:{queue}:t:id with field state, sorted sets
-- asynq:{queue}:retry and :scheduled, list asynq:{queue}:pending whose right end is its head.
local registry, leaver, pass, now = KEYS[1], ARGV[1], ARGV[2] == '1', ARGV[3]
local offset, most, wanted = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

local function parse(member)
  local size, rest = string.match(member, '^(%d+):(.*)$')
  local queue, id = string.sub(rest, 1, tonumber(size)), string.sub(rest, tonumber(size) + 1)
  local prefix = 'asynq:{' .. queue .. '}:'
  return id, prefix, prefix .. 't:' .. id
end

if leaver ~= '' then
  local _, _, task = parse(leaver)
  local state = redis.call('HGET', task, 'state')
  -- When asynq has given a run up and begun another, the entry and the record are that one's.
  if state ~= 'retry' and state ~= 'scheduled' and state ~= 'pending' then
    redis.call('ZREM', registry, leaver)
    redis.call('HDEL', task, 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:place', 'railtoken:registry')
  end
end

local looked = redis.call('ZRANGE', registry, offset, offset + most - 1)
local active, woken = 0, {}
for _, member in ipairs(looked) do
  local id, prefix, task = parse(member)
  local state = redis.call('HGET', task, 'state')
  if state == 'active' then
    -- One that was passed over before has most likely died: its worker was killed.
    local dead = redis.call('HGET', task, 'railtoken:passed')
    if pass then
      redis.call('HSET', task, 'railtoken:passed', '1')
    elseif not dead then
      if #woken == 0 then
        return {'busy', redis.call('ZCARD', registry)}
      end
      break
    end
    active = active + 1
  else
    local moved = false
    if state == 'retry' or state == 'scheduled' then
      moved = redis.call('ZREM', prefix .. state, id) == 1
    elseif state == 'pending' then
      -- Its timer brought it back, or an operator did: to the tail. It was pushed lately, so it is found near that end.
      moved = redis.call('LREM', prefix .. 'pending', 1, id) == 1
    end
    redis.call('ZREM', registry, member)
    if moved then
      redis.call('HSET', task, 'state', 'pending', 'pending_since', now)
      woken[#woken + 1] = member
      if #woken == wanted then
        break
      end
    end
  end
end
if #woken > 0 then
  for i = #woken, 1, -1 do -- the first of them comes last, to the very head
    local id, prefix = parse(woken[i])
    redis.call('RPUSH', prefix .. 'pending', id)
  end
  return {'woken', redis.call('ZCARD', registry), unpack(woken)}
end
if #looked == most then
  return {'more', offset + active}
end
return {pass and active > 0 and 'busy' or 'none', redis.call('ZCARD', registry)}
