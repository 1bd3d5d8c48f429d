-- Part of the scripts: takes tasks for one server of asynq, and the locks of their keys if these are recorded. The queues
-- are KEYS from first on, four of each: pending, paused, active and lease. A task that is granted is active, and its run
-- has a name that begins with that of the fetch. Before it stands one_key.lua of package fused.
--
-- What a fetch is told is in ARGV from an index at on:
--   1 its name   2 most tasks   3 when asynq's lease ends (s)
--   4 types of tasks whose keys are taken, with TTLs (ms): "|type=ttl|type=ttl|", empty for none   5 and 6 beginning and
--   end of the owner values   7 proposal   8 FenceTTL (ms)   9 size of the blocks of tokens: see acquire.lua
--   10 how many orders follow   then each order in which to look at the queues: a byte for each of them

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
  return call('EXISTS', 'railtoken:waiters:' .. string.match(lock, '{.*}$'))
end

-- ttlOf(types, kind) returns the TTL of the locks of a type of tasks, or false if they are not taken.
local ttls = {}
local function ttlOf(types, kind)
  local ttl = ttls[kind]
  if ttl == nil then
    local _, found = string.find(types, '|' .. kind .. '=', 1, true)
    ttl = found and string.match(types, '^%d+', found + 1) or false
    ttls[kind] = ttl
  end
  return ttl
end

-- lock(message, recorded, id, number, at) takes the locks of all recorded keys, for the n-th task of the fetch, or
-- none. It returns the counters of the keys; if one is held, {0, its position, its value, how long it lasts (ms), its
-- counter}; or false. The type of a task is the first field of its message.
local function lock(message, recorded, id, number, at)
  local types = ARGV[at + 3]
  if types == '' or not message or string.byte(message) ~= 10 then
    return false
  end
  local kind = string.sub(message, 3, 2 + string.byte(message, 2))
  local ttl = ttlOf(types, kind)
  if not ttl then
    return false
  end
  local owner = ARGV[at + 4] .. string.format('%03d', number) .. ARGV[at + 5] .. kind .. '/' .. id
  if #owner > 500 then
    owner = string.sub(owner, 1, 500)
  end
  local proposal, fence_ttl, block = ARGV[at + 6], ARGV[at + 7], tonumber(ARGV[at + 8])
  local counters, names, n = {}, {}, 0
  for key in string.gmatch(recorded, '[^ ]+') do
    local name = 'railtoken:lock:{' .. key .. '}'
    local ok, counter = not spared[name], nil
    if ok then
      ok, counter = pcall(acquire, name, name .. ':fence', nil, owner, ttl, fence_ttl, proposal, 0, block)
    end
    n = n + 1
    names[n], counters[n] = name, counter
    if not ok or type(counter) == 'table' then -- it cannot be had, or is held
      for _, taken in ipairs(names) do
        pcall(release, taken, taken .. ':fence', taken .. ':notify', owner)
      end
      if not ok then
        return false
      end
      counter[2] = n
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
  local time = call('TIME')
  return string.format('%.0f', math.max(time[1] * 1000000 + time[2] - at, 0))
end

-- tell(reply, queue, id, number, task, at) adds the n-th task that a fetch was granted to a reply: position of its queue,
-- ID, number, message, what is recorded of its waiting, the recorded keys, and what lock returned. The record is false
-- for a task that has not waited; else its retry count, conflicts, first conflict (us), and how long ago the task was
-- woken (us) or false. What a lock fails with, the handler's own attempt meets again.
local function tell(reply, queue, id, number, task, at)
  local found = call('HMGET', task, 'msg', 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first',
    'railtoken:woken', 'railtoken:keys')
  local message, recorded, waited, n = found[1], found[6], false, #reply
  if found[2] or found[3] or found[4] or found[5] then
    waited = {found[2], found[3], found[4], ago(found[5])}
  end
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = queue, id, number, message
  reply[n + 5], reply[n + 6], reply[n + 7] = waited, recorded, recorded and lock(message, recorded, id, number, at)
  return message
end

-- Leases of asynq that are to be noted: their ends and the IDs of the tasks, by the key of the queue's leases.
local leases = {}

-- lease() notes them. It must be called after grant, also if that has failed: asynq recovers only tasks with a lease.
local function lease()
  for key, due in pairs(leases) do
    for from = 1, #due, 1000 do
      call('ZADD', key, unpack(due, from, math.min(from + 999, #due)))
    end
  end
end

-- grant(reply, first, most, at) takes up to so many tasks for a fetch and adds them to a reply. Each is looked for in the
-- queues by an order of its own, and by the last one if there are fewer. A paused queue has no task, and one whose hash
-- is gone is left to asynq. Long messages come in several calls, or a slow network would not bring the reply in time.
local function grant(reply, first, most, at)
  local name, expiry, orders = ARGV[at] .. '.', ARGV[at + 2], tonumber(ARGV[at + 9])
  local open, empty = {}, {} -- queues that are not paused; and those that are, or have no task left
  local room = 1000000 -- bytes of messages
  local order = ''
  for i = 1, most do
    if i <= orders then
      order = ARGV[at + 9 + i]
    end
    local id, k, queue
    for j = 1, #order do
      queue = string.byte(order, j)
      k = first + 4 * (queue - 1)
      if not open[queue] and not empty[queue] then
        open[queue] = call('EXISTS', KEYS[k + 1]) == 0
        empty[queue] = not open[queue]
      end
      if not empty[queue] then
        id = call('RPOPLPUSH', KEYS[k], KEYS[k + 2])
        if id then
          break
        end
        empty[queue] = true
      end
    end
    if not id then
      return
    end
    local task = hashOf(KEYS[k], id)
    local due = leases[KEYS[k + 3]]
    if not due then
      due = {}
      leases[KEYS[k + 3]] = due
    end
    local n = #due
    due[n + 1], due[n + 2] = expiry, id
    call('HSET', task, 'state', 'active', 'railtoken:run', name .. i)
    local message = tell(reply, queue, id, i, task, at)
    call('HDEL', task, 'pending_since', 'railtoken:woken')
    room = room - (message and #message or 0)
    if room <= 0 then
      return
    end
  end
end
