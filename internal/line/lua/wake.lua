-- Moves the next waiters of a key that can run to the heads of their queues (docs/design.md, 5.2), or one that is
-- named. It must be atomic: a waiter that leaves the waiters is on its way to run, or a wake would be swallowed. It
-- touches keys of any queue and runs on one node alone; on a Cluster its parts are steps: see wake_steps.go.
--
-- KEYS  1 waiters of the key   2 index of all parked tasks   3 owed wakes
-- ARGV  1 entry of the task that releases the key, or ''   2 the only entry that is to be woken, or ''   3 now (ns)
--       4 how many waiters to skip   5 how many to check   6 how many to wake at most
--       7 1 to put a waiter of a paused or unserved queue at the head of that queue   when no other can run, else 0
--       8 in how long (ms) another process looks whether the task has come   9... unserved queues
--
-- Returns {outcome, waiters left, entries that were woken...}. The outcome is 'woken'; 'gone' when the only entry was
-- that of a task that cannot run any more, and was removed; 'none' when no other waiter can run; or 'more' when none of
-- those that it checked could be woken: call again, and skip as many as the second value says.
local waiters, index, leaver, only, now = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local rank, most, wanted, hope = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'

-- Waiters of a paused or unserved queue keep their places: they are skipped without a check, ten thousand at most.
local held, passable = {}, 10000
for i = 9, #ARGV do
  held['asynq:{' .. ARGV[i] .. '}:'] = true
end
local function stuck(prefix)
  if only ~= '' then
    return false
  end
  if held[prefix] == nil then
    held[prefix] = redis.call('EXISTS', prefix .. 'paused') == 1
  end
  return held[prefix]
end

if leaver ~= '' then
  local _, _, task = parse(leaver)
  if leave(task)[1] == 1 then
    redis.call('ZREM', index, leaver)
  else
    leaver = ''
  end
end

-- The first waiter can usually be woken. Those behind it are read only if not, because a long read costs more than all
-- the rest.
local woken, also, looked, size, searched, over, outcome = {}, {}, 0, wanted, 0, false, 'none'
while not over and looked < most and passable > 0 do
  local found = look(waiters, leaver, only, rank, size)
  for i = 2, #found do
    local entry = found[i]
    local _, prefix, task = parse(entry)
    if stuck(prefix) then
      passable = passable - 1
      rank = rank + 1
    else
      looked = looked + 1
      local verdict, state, _, others = unpack(check(task, waiters, now))
      redis.call('ZREM', waiters, entry)
      if verdict ~= 'elsewhere' then
        redis.call('ZREM', index, entry)
      end
      if only ~= '' and (verdict == 'gone' or verdict == 'overdue') then
        outcome = 'gone'
      end
      if state == 'pending' then
        searched = searched + 1
      end
      if verdict == 'here' and searched <= wanted and pull(entry, state) then
        woken[#woken + 1], also[#woken + 1] = entry, others
        if #woken == wanted then
          over = true
          break
        end
      end
    end
  end
  over = over or only ~= '' or #found - 1 < size
  leaver, size = '', 100
end
if #woken > 0 then
  for i = #woken, 1, -1 do -- the first of them comes last, to the very head
    push(woken[i], now, waiters, also[i])
  end
  local behind = redis.call('ZRANGE', waiters, 0, 0)[1]
  if behind then -- if the woken tasks die, this one must not wait as long as while others stood before it
    local _, _, task = parse(behind)
    hasten(task, behind, now)
  end
  local left = redis.call('ZCARD', waiters)
  owe(KEYS[3], waiters, left, ARGV[8])
  return {'woken', left, unpack(woken)}
end
if not over and passable > 0 then
  return {'more', rank}
end
if hope and rank > 0 then
  -- The first that could run if its queue were served is put there where it comes first once that is so, and keeps its
  -- place as well. One that is pending is there already.
  for _, entry in ipairs(redis.call('ZRANGE', waiters, 0, 99)) do
    local _, _, task = parse(entry)
    local verdict, state, _, others = unpack(check(task, waiters, now))
    if verdict == 'here' then
      if state ~= 'pending' and pull(entry, state) then
        push(entry, now, waiters, others)
      end
      break
    end
  end
end
return {outcome, redis.call('ZCARD', waiters)}
