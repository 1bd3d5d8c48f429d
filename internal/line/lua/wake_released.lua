-- Part of the scripts that acknowledge tasks: wakes tasks that are parked on a key in the script that releases its lock.
-- Cases that need more than this are left to wake.lua; a test compares what both leave. It runs on one node alone, because
-- the waiters tell which keys it touches.

-- wakeReleased(waiters, most, now (ns), unserved queues: see grant.lua; the sequence of the key if it has one) moves the next
-- waiters of a key to the heads of their queues, so many at most. It returns {waiters left, entries that were woken...} and
-- the names of their hashes; or nil, and nothing was done, if there is none or one of them cannot run.
local function wakeReleased(waiters, most, now, unserved, sequence)
  local entries = redis.call('ZRANGE', sequence or waiters, 0, most)
  local behind = table.remove(entries, most + 1)
  local tasks, also, open = {}, {}, {}
  for i, entry in ipairs(entries) do
    local id, prefix, task = parse(entry)
    if open[prefix] == nil then
      open[prefix] = not string.find(unserved, '|' .. string.sub(prefix, 8, -3) .. '|', 1, true) and
        redis.call('EXISTS', prefix .. 'paused') == 0
    end
    local found = open[prefix] and check(task, waiters, now)
    if not found or found[1] ~= 'here' or not redis.call('ZSCORE', prefix .. 'retry', id) then
      return nil
    end
    tasks[i], also[i] = task, found[4]
  end
  if #entries == 0 then
    return nil
  end
  redis.call('ZREM', waiters, unpack(entries))
  redis.call('ZREM', index, unpack(entries))
  for i = #entries, 1, -1 do -- the first of them comes last, to the very head
    pull(entries[i], 'retry')
    push(entries[i], now, waiters, also[i])
  end
  if behind then -- if the woken tasks die, this one must not wait as long as while others stood before it
    local _, _, task = parse(behind)
    hasten(task, behind, now)
  end
  local left = redis.call('ZCARD', waiters)
  owe(owed, waiters, left, owed_for)
  return {left, unpack(entries)}, tasks
end

-- leaveWaiters(task, waiters) removes a task whose run has ended from the waiters that it was parked among, and its record:
-- a failed task waits for its retry, and not for the key.
local function leaveWaiters(task, waiters)
  local queue, id = string.match(task, '^asynq:{(.-)}:t:(.*)$')
  if queue then
    local entry = #queue .. ':' .. queue .. id
    redis.call('ZREM', waiters, entry)
    redis.call('ZREM', index, entry)
  end
  forget(task)
end
