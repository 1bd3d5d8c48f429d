-- Part of the scripts: takes tasks for one server of asynq, and the locks of their keys if these are recorded. The queues
-- are KEYS from first on, four of each: pending, paused, active and lease. A task that is granted is active, and its run
-- has a name that begins with that of the call. Before it stands one_key.lua of package fused.
--
-- What is needed for locks is in ARGV from an index locks on:
--   1 types of tasks whose keys are taken, with TTLs (ms): "|type=ttl|type=ttl|", empty for none   2 and 3 beginning and
--   end of the owner values   4 proposal   5 FenceTTL (ms)   6 size of the blocks of tokens: see acquire.lua

-- hashOf(pending or active key, ID) returns the name of a task's hash.
local prefixes = {}
local function hashOf(key, id)
  local prefix = prefixes[key]
  if not prefix then
    prefix = string.match(key, '^(.*}:)') .. 't:'
    prefixes[key] = prefix
  end
  return prefix .. id
end

-- Locks that were released in this call while another caller waits for them: it may have them first.
local spared = {}

-- waiting(lock) returns 1 if tasks are parked on the key of a lock, else 0.
local function waiting(lock)
  return redis.call('EXISTS', 'railtoken:waiters:' .. string.match(lock, '{.*}$'))
end

-- lock(message, recorded, id, number, locks) takes the locks of all recorded keys, for the n-th task of the call, or
-- none. It returns the counters of the keys; if one is held, {0, its position, its value, how long it lasts (ms), its
-- counter}; or false. The type of a task is the first field of its message.
local function lock(message, recorded, id, number, locks)
  local types = ARGV[locks]
  if types == '' or not message or not recorded or string.byte(message) ~= 10 then
    return false
  end
  local kind = string.sub(message, 3, 2 + string.byte(message, 2))
  local _, found = string.find(types, '|' .. kind .. '=', 1, true)
  if not found then
    return false
  end
  local ttl = string.match(types, '^%d+', found + 1)
  local owner = string.sub(ARGV[locks + 1] .. string.format('%03d', number) .. ARGV[locks + 2] .. kind .. '/' .. id, 1, 500)
  local counters, names = {}, {}
  for key in string.gmatch(recorded, '[^ ]+') do
    local name = 'railtoken:lock:{' .. key .. '}'
    local ok, counter = not spared[name], nil
    if ok then
      ok, counter = pcall(acquire, name, name .. ':fence', name .. ':notify', owner, ttl, ARGV[locks + 4],
        ARGV[locks + 3], 0, tonumber(ARGV[locks + 5]))
    end
    names[#names + 1], counters[#counters + 1] = name, counter
    if not ok or type(counter) == 'table' then -- it cannot be had, or is held
      for _, taken in ipairs(names) do
        pcall(release, taken, taken .. ':fence', taken .. ':notify', owner)
      end
      if not ok then
        return false
      end
      counter[2] = #names
      return counter
    end
  end
  return counters
end

-- ago(woken) returns how long ago (us) a task was woken, as text: '0' if that is not known, and false if it was not woken.
local function ago(woken)
  local at = tonumber(woken or '')
  if not at or at <= 1 then
    return woken and '0'
  end
  local time = redis.call('TIME')
  return string.format('%.0f', math.max(time[1] * 1000000 + time[2] - at, 0))
end

-- tell(reply, queue, id, call, number, task, locks) adds the n-th task that a call was granted to a reply: position of
-- its queue, ID, run, message, retry count of the record, conflicts, first conflict (us), how long ago it was woken (us)
-- or false, the recorded keys, and what lock returned. What a lock fails with, the handler's own attempt meets again.
local function tell(reply, queue, id, call, number, task, locks)
  local found = redis.call('HMGET', task, 'msg', 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first',
    'railtoken:woken', 'railtoken:keys')
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = queue, id, call .. '.' .. number
  found[5] = ago(found[5])
  for i = 1, 6 do
    reply[n + 3 + i] = found[i]
  end
  reply[n + 10] = false
  if found[6] then
    reply[n + 10] = lock(found[1], found[6], id, number, locks)
  end
  return found[1]
end

-- Leases of asynq that are to be noted: their ends and the IDs of the tasks, by the key of the queue's leases.
local leases = {}

-- lease() notes them. It must be called after grant, also if that has failed: asynq recovers only tasks with a lease.
local function lease()
  for key, due in pairs(leases) do
    for from = 1, #due, 1000 do
      redis.call('ZADD', key, unpack(due, from, math.min(from + 999, #due)))
    end
  end
end

-- Queues in which this call has found no task, and that are not paused.
local empty, open = {}, {}

-- grant(reply, first, most, call, expiry, locks, at, orders) takes as many tasks as most says and adds them to a reply. The
-- queues that each of them is looked for in are a byte each, in ARGV from at on, in so many orders; the last one is that
-- of all further tasks.
-- expiry is when asynq's lease ends (s). A paused queue has no task, and one whose hash is gone is left to asynq. Long
-- messages come in several calls, or a slow network would not bring the reply in time.
local function grant(reply, first, most, call, expiry, locks, at, orders)
  local room = 1000000 -- bytes of messages
  local order = ''
  for i = 1, most do
    order = i <= orders and ARGV[at + i - 1] or order
    local id, queue
    for j = 1, #order do
      local q = string.byte(order, j)
      local k = first + 4 * (q - 1)
      if not open[q] and not empty[q] then
        open[q] = redis.call('EXISTS', KEYS[k + 1]) == 0
        empty[q] = not open[q]
      end
      if not empty[q] then
        id = redis.call('RPOPLPUSH', KEYS[k], KEYS[k + 2])
        if id then
          queue = q
          break
        end
        empty[q] = true
      end
    end
    if not id then
      return
    end
    local k = first + 4 * (queue - 1)
    local task = hashOf(KEYS[k], id)
    local due = leases[KEYS[k + 3]] or {}
    leases[KEYS[k + 3]] = due
    due[#due + 1], due[#due + 2] = expiry, id
    redis.call('HSET', task, 'state', 'active', 'railtoken:run', call .. '.' .. i)
    local message = tell(reply, queue, id, call, i, task, locks)
    redis.call('HDEL', task, 'pending_since', 'railtoken:woken')
    room = room - (message and #message or 0)
    if room <= 0 then
      return
    end
  end
end

-- granted(reply, first, queues, call, lease, locks) adds what an earlier copy of a call has taken, and is still in that run. Its
-- lease may be about to end, or asynq would recover it before the server extends it.
local function granted(reply, first, queues, call, lease, locks)
  for q = 1, queues do
    local active = KEYS[first + 4 * (q - 1) + 2]
    for _, id in ipairs(redis.call('LRANGE', active, 0, -1)) do
      local task = hashOf(active, id)
      local run = redis.call('HGET', task, 'railtoken:run')
      if run and string.sub(run, 1, #call + 1) == call .. '.' then
        redis.call('ZADD', KEYS[first + 4 * (q - 1) + 3], lease, id)
        tell(reply, q, id, call, tonumber(string.sub(run, #call + 2)), task, locks)
      end
    end
  end
end
