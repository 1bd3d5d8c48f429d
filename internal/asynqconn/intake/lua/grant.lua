-- Part of the scripts: takes tasks for one server of asynq, and the locks of their keys if these are recorded. The queues
-- are KEYS from first on, four of each: pending, paused, active and lease. A task that is granted is active, and its run
-- has a name that begins with that of the call. A task that has a key held is parked instead, if its type allows that, and
-- the next one is looked at. Before it stand one_key.lua of package fused and the function parking, which returns the
-- functions park and settle of package parking, or nothing when no task is to be parked.
--
-- What is needed for locks is in ARGV from an index locks on:
--   1 types of tasks whose keys are taken: "|type=ttl,after,most|type=ttl,after,most|", empty for none. ttl is that of the
--   locks (ms); after is how long after the lock of its key has ended a parked task tries again, and most how long at
--   most (ms), 0 for a type whose tasks are not parked
--   2 and 3 beginning and end of the owner values   4 proposal   5 FenceTTL (ms)   6 size of the blocks of tokens: see
--   acquire.lua   7 now (ns)   8 index of all parked tasks   9 how long an idle set of waiters is kept (ms)

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

-- Keys that this call has found held: {value of the lock, how long it lasts (ms), counter}.
local held = {}

-- Types of tasks, by their names: {TTL (ms), after, most (ms), name}; false for one whose keys are not taken.
local types = {}

-- typed(name, locks) returns what is known of a type.
local function typed(name, locks)
  local known = types[name]
  if known == nil then
    local _, from = string.find(ARGV[locks], '|' .. name .. '=', 1, true)
    known = false
    if from then
      local ttl, after, most = string.match(ARGV[locks], '^(%d+),(%d+),(%d+)', from + 1)
      known = {ttl, tonumber(after), tonumber(most), name}
    end
    types[name] = known
  end
  return known
end

-- lock(message, recorded, id, number, locks, again) takes the locks of all recorded keys, for the n-th task of the call, or
-- none; again says that an earlier copy of the call may have taken them. The type of a task is the first field of its
-- message. It returns the counters of the keys; or false and, if a key is held, that key and what is known of the type.
local function lock(message, recorded, id, number, locks, again)
  if ARGV[locks] == '' or not message or not recorded or string.byte(message) ~= 10 then
    return false
  end
  local kind = string.sub(message, 3, 2 + string.byte(message, 2))
  local known = typed(kind, locks)
  if not known then
    return false
  elseif held[recorded] and not again then -- most often, there is one key
    return false, recorded, known
  end
  local owner = string.sub(ARGV[locks + 1] .. string.format('%03d', number) .. ARGV[locks + 2] .. kind .. '/' .. id, 1, 500)
  local counters, names = {}, {}
  for key in string.gmatch(recorded, '[^ ]+') do
    local name = 'railtoken:lock:{' .. key .. '}'
    local ok, counter = not spared[name], nil
    if ok then
      ok, counter = pcall(acquire, name, name .. ':fence', name .. ':notify', owner, known[1], ARGV[locks + 4],
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
      held[key] = {counter[3], counter[4], counter[5]}
      return false, key, known
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

-- read(task) returns what the hash of a task has: message, retry count of the record, conflicts, first conflict (us), when
-- it was woken (us), the recorded keys.
local function read(task)
  return redis.call('HMGET', task, 'msg', 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first',
    'railtoken:woken', 'railtoken:keys')
end

-- tell(reply, queue, id, call, number, found, counters) adds the n-th task that a call was granted to a reply: position of
-- its queue, ID, run, and what read has found, but with how long ago it was woken (us) or false, and what lock returned.
-- What a lock fails with, the handler's own attempt meets again.
local function tell(reply, queue, id, call, number, found, counters)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = queue, id, call .. '.' .. number
  found[5] = ago(found[5])
  for i = 1, 6 do
    reply[n + 3 + i] = found[i]
  end
  reply[n + 10] = counters
end

-- How many tasks one call may park: it keeps all others waiting meanwhile.
local spaces = 100

-- Functions of package parking, once they are needed.
local park, settle = nil, nil

-- shelved(parked, queue, id, call, active, taken, task, found, key, known, locks) parks a task, if that can be, which is taken
-- and active, or still pending. It adds to the list of those that were parked: position of the queue, ID, type, the
-- recorded keys, the key that is held, the value of its lock, how long that lasts (ms), its counter, and what park
-- returned.
local function shelved(parked, queue, id, call, active, taken, task, found, key, known, locks)
  if known[3] == 0 or found[5] then -- one that was woken has its own way to the key
    return false
  end
  if not park then
    park, settle = parking()
  end
  local lock = held[key]
  local ok, place = pcall(park, id, active, taken, task, found[1], found[6], found[3], key, lock[2], known[2], known[3], call,
    ARGV[locks + 6], ARGV[locks + 7], tonumber(ARGV[locks + 8]))
  if not ok or not place then
    return false
  end
  spaces = spaces - 1
  local n = #parked
  parked[n + 1], parked[n + 2], parked[n + 3], parked[n + 4] = queue, id, known[4], found[6]
  parked[n + 5], parked[n + 6], parked[n + 7], parked[n + 8] = key, lock[1], lock[2], lock[3]
  for i = 1, 6 do
    parked[n + 8 + i] = place[i]
  end
  return true
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
-- of all further tasks. If tasks were parked, their list follows, and after it 1 when there may be more of them behind.
-- expiry is when asynq's lease ends (s). A paused queue has no task, and one whose hash is gone is left to asynq. Long
-- messages come in several calls, or a slow network would not bring the reply in time.
local function grant(reply, first, most, call, expiry, locks, at, orders)
  local room = 1000000 -- bytes of messages
  local order = ''
  local parked = {}

  -- The ends of queues of which a task was parked, by the positions of the queues: how many there are to leave pending, the
  -- next ones, how many of these are left, and how many to read then.
  local ends = {}

  -- leave() has those leave pending that were parked.
  local function leave()
    if not settle then
      return
    end
    settle(ARGV[locks + 7])
    for q, tail in pairs(ends) do
      if tail.parked > 0 then
        redis.call('LTRIM', KEYS[first + 4 * (q - 1)], 0, -tail.parked - 1)
        tail.parked = 0
      end
    end
  end

  -- pop() returns the position of the queue of the next task, its ID, and whether it was taken, and is active; or nil.
  local function pop()
    for j = 1, #order do
      local q = string.byte(order, j)
      local k = first + 4 * (q - 1)
      if not open[q] and not empty[q] then
        open[q] = redis.call('EXISTS', KEYS[k + 1]) == 0
        empty[q] = not open[q]
      end
      if not empty[q] then
        local tail = ends[q]
        if tail and tail.left == 0 then
          tail.ids = redis.call('LRANGE', KEYS[k], -tail.parked - math.min(tail.size, spaces), -tail.parked - 1)
          tail.left, tail.size = #tail.ids, 2 * tail.size
        end
        if tail and tail.left > 0 then
          return q, tail.ids[tail.left], false
        end
        local id = not tail and redis.call('RPOPLPUSH', KEYS[k], KEYS[k + 2])
        if id then
          return q, id, true
        end
        empty[q] = true
      end
    end
  end

  local function take()
    for i = 1, most do
      order = i <= orders and ARGV[at + i - 1] or order
      while true do
        local queue, id, taken = pop()
        if not id then
          return 0
        end
        local k, tail = first + 4 * (queue - 1), ends[queue]
        local task = hashOf(KEYS[k], id)
        local due = leases[KEYS[k + 3]] or {}
        leases[KEYS[k + 3]] = due
        if taken then
          due[#due + 1], due[#due + 2] = expiry, id
        end
        local found = read(task)
        local counters, key, known = lock(found[1], found[6], id, i, locks)
        room = room - (found[1] and #found[1] or 0)
        if key and shelved(parked, queue, id, call, KEYS[k + 2], taken, task, found, key, known, locks) then
          if taken then
            due[#due], due[#due - 1] = nil, nil
            ends[queue] = {parked = 0, left = 0, size = 4}
          else
            tail.parked, tail.left = tail.parked + 1, tail.left - 1
          end
          if spaces <= 0 or room <= 0 then
            return 1
          end
        else
          if not taken then
            leave()
            tail.left = tail.left - 1
            due[#due + 1], due[#due + 2] = expiry, id
            redis.call('RPOPLPUSH', KEYS[k], KEYS[k + 2])
          end
          redis.call('HSET', task, 'state', 'active', 'railtoken:run', call .. '.' .. i)
          tell(reply, queue, id, call, i, found, counters)
          redis.call('HDEL', task, 'pending_since', 'railtoken:woken')
          break
        end
      end
      if room <= 0 then
        return 0
      end
    end
    return 0
  end

  local ok, more = pcall(take)
  local left, failure = pcall(leave)
  if #parked > 0 then
    reply[#reply + 1], reply[#reply + 2] = parked, ok and more or 0
  end
  if not ok or not left then
    error(ok and failure or more, 0)
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
        local number, found = tonumber(string.sub(run, #call + 2)), read(task)
        tell(reply, q, id, call, number, found, (lock(found[1], found[6], id, number, locks, true)))
      end
    end
  end
end
