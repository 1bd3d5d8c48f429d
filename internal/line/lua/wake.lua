-- Part of the scripts: wakes tasks that wait for a key (docs/design.md, 5.2). It must be atomic: a waiter that leaves the waiters
-- is on its way to run, or a wake would be swallowed. It touches keys of any queue and runs on one node alone; on a Cluster its
-- parts are steps: see wake_steps.go.

-- Whether queues are paused (1 or 0), by the prefixes of their names: what this call has looked up.
local paused = {}

-- wake(waiters, index, owed wakes, sequence or nil, entry of the task that releases the key, or '', the only entry that is to be
-- woken, or '', now (ns), how many waiters to skip, how many to check, how many to wake at most, 1 to put a waiter of a paused or
-- unserved queue at the head of that queue when no other can run, else 0; in how long (ms) another process looks whether the
-- task has come, unserved queues...) moves the next waiters of a key that can run to the heads of their queues, or the one that
-- is named, or the first of a sequence if it waits.
--
-- Returns {outcome, waiters left, entries that were woken...}. The outcome is 'woken'; 'gone' when the only entry was
-- that of a task that cannot run any more, and was removed; 'none' when no other waiter can run; 'more' when none of
-- those that it checked could be woken: call again, and skip as many as the second value says; or 'apart' when one that it met is in
-- another lane: none was woken, and the wake is to be made in steps.
local function wake(waiters, index, owed, sequence, leaver, only, now, rank, most, wanted, hope, delay, ...)
  rank, most, wanted = tonumber(rank), tonumber(most), tonumber(wanted)
  -- Waiters of a paused or unserved queue keep their places: they are skipped without a check, ten thousand at most.
  local held, passable = {}, 10000
  for _, queue in ipairs({...}) do
    held['asynq:{' .. queue .. '}:'] = true
  end
  local function stuck(prefix)
    if held[prefix] == nil then
      paused[prefix] = paused[prefix] or redis.call('EXISTS', prefix .. 'paused')
      held[prefix] = paused[prefix] == 1
    end
    return held[prefix]
  end

  local lane = laneOf(waiters)
  if leaver ~= '' then
    local _, prefix, task = parse(leaver)
    if apart(lane, prefix) then
      return {'apart', 0}
    end
    if leave(task)[1] == 1 then
      redis.call('ZREM', waiters, leaver)
      redis.call('ZREM', index, leaver)
    end
  end

  -- The first waiter can usually be woken. Those behind it are read only if not, because a long read costs more than all
  -- the rest.
  local woken, also, looked, size, searched, over, outcome = {}, {}, 0, wanted, 0, false, 'none'
  local behind, all = nil, false -- the next one, if it is known whether there is one
  local function search()
    while not over and looked < most and passable > 0 do
      local found
      if only ~= '' then
        found = redis.call('ZSCORE', waiters, only) and {only} or {}
      elseif sequence then
        found, size = redis.call('ZRANGE', sequence, 0, 1), 1
      else
        found = redis.call('ZRANGE', waiters, rank, rank + size)
      end
      local out, parked = {}, {}
      for i = 1, lane and #found or 0 do
        local _, prefix = parse(found[i])
        if apart(lane, prefix) then
          outcome = 'apart'
          return
        end
      end
      for i = 1, math.min(#found, size) do
        local entry = found[i]
        local _, prefix, task = parse(entry)
        if only == '' and stuck(prefix) then
          passable = passable - 1
          rank = rank + 1
        else
          looked = looked + 1
          local verdict, state, _, others = unpack(check(task, waiters, now))
          if sequence and verdict ~= 'here' then
            break
          end
          out[#out + 1] = entry
          if verdict ~= 'elsewhere' then
            parked[#parked + 1] = entry
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
              over, behind, all = true, found[i + 1], only == '' and rank == 0
              break
            end
          end
        end
      end
      if #out > 0 then
        redis.call('ZREM', waiters, unpack(out))
      end
      if #parked > 0 then
        redis.call('ZREM', index, unpack(parked))
      end
      over = over or only ~= '' or sequence or #found <= size
      size = 100
    end
  end
  -- A task that was pulled is in no set until it is pushed, so nothing ends the script in between: not an error, and not a waiter
  -- of another lane. The rest is for the wake that is owed.
  local ok, failure = pcall(search)
  if #woken == 0 then
    if not ok then
      error(failure, 0)
    elseif outcome == 'apart' then
      return {'apart', 0}
    end
  elseif not ok then
    redis.call('ZREM', waiters, unpack(woken))
    redis.call('ZREM', index, unpack(woken))
  end
  if #woken > 0 then
    for i = #woken, 1, -1 do -- the first of them comes last, to the very head
      push(woken[i], now, waiters, also[i])
    end
    behind = not all and redis.call('ZRANGE', waiters, 0, 0)[1] or behind
    if behind then -- if the woken tasks die, this one must not wait as long as while others stood before it
      local _, prefix, task = parse(behind)
      if not apart(lane, prefix) then
        hasten(task, behind, now)
      end
    end
    local left = redis.call('ZCARD', waiters)
    owe(owed, waiters, left, delay)
    return {'woken', left, unpack(woken)}
  end
  if not over and passable > 0 then
    return {'more', rank}
  end
  if hope == '1' and rank > 0 then
    -- The first that could run if its queue were served is put there where it comes first once that is so, and keeps its
    -- place as well. One that is pending is there already.
    for _, entry in ipairs(redis.call('ZRANGE', waiters, 0, 99)) do
      local _, prefix, task = parse(entry)
      local verdict, state, _, others = 'apart', nil, nil, nil
      if not apart(lane, prefix) then
        verdict, state, _, others = unpack(check(task, waiters, now))
      end
      if verdict == 'here' then
        if state ~= 'pending' and pull(entry, state) then
          push(entry, now, waiters, others)
        end
        break
      end
    end
  end
  return {outcome, redis.call('ZCARD', waiters)}
end

-- announced(reply) tells idle servers of the tasks that wake has woken, and returns its reply.
local function announced(reply)
  if reply[1] == 'woken' then
    local come = {}
    for i = 3, #reply do
      local _, prefix = parse(reply[i])
      come[prefix] = (come[prefix] or 0) + 1
    end
    for prefix, n in pairs(come) do
      ready(prefix .. 'pending', n)
    end
  end
  return reply
end

-- wakeReleased(waiters, most, now (ns), unserved queues: see grant.lua; the sequence of the key if it has one) is the wake of the
-- script that releases a key. It returns {waiters left, entries that were woken...}; or nil if the caller has to look for more.
local function wakeReleased(waiters, most, now, unserved, sequence)
  local queues = {}
  for queue in string.gmatch(unserved, '[^|]+') do
    queues[#queues + 1] = queue
  end
  local index = indexOf(parked, waiters)
  local reply = wake(waiters, index, index .. ':owed', sequence, '', '', now, 0, 100, most, '0', owed_for, unpack(queues))
  return table.remove(reply, 1) == 'woken' and reply or nil
end
