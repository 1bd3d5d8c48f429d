-- Part of the scripts: takes tasks for one server of asynq, and the locks of their keys if these are recorded. The queues
-- are KEYS from first on, four of each: pending, paused, active and lease. A task that is granted is active, and its run
-- has a name that begins with that of the fetch. The field pending_since of its hash has it, because asynq's own dequeue
-- (v0.26) deletes that field and never reads it of an active task: so a server on asynq's own client, which runs a task
-- that was recovered, is in no run that was named here. A task that finds a key held, and
-- enough others parked on it (none in order), is parked instead, and the next one is looked at. Before it stands locks.lua of package lockwire, and in it those of package line that
-- park and wake, unless the server parks no tasks.
--
-- What a fetch is told is in ARGV from an index at on:
--   1 its name   2 most tasks   3 when asynq's lease ends (s)
--   4 types of tasks whose keys are taken: "|type=ttl|type=ttl/order,after,most,behind|", empty for none. ttl is that of the
--   locks (ms). Only the first task in the order of its key takes the lock. Tasks of a type without the rest are not parked here. Others are, behind so many that are parked on the
--   key: the next in line tries again by itself so long after the end of the lock, and most from now at the latest (ms)
--   5 and 6 beginning and end of the owner values   7 proposal   8 FenceTTL (ms)   9 size of the blocks of tokens: see
--   acquire   10 now (ns)
--   11 queues that no server works on, "|queue|queue|", empty for none   12 how many orders follow   then each order in
--   which to look at the queues: a byte for each of them; then how many tasks of earlier fetches are to be admitted, and of each:
--   position of its queue, ID, run, its keys as they are recorded, and what its message begins with: the field of its type

local call = redis.call

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

-- waitersOf(lock) returns the name of the tasks that are parked on the key of a lock.
local function waitersOf(lock)
  return 'railtoken:waiters:' .. string.match(lock, '{.*}$')
end

-- kindOf(message) returns the type of a task, which is the first field of its message; nil when it cannot be read.
local function kindOf(message)
  if message then
    local tag, size = string.byte(message, 1, 2)
    return tag == 10 and size and string.sub(message, 3, 2 + size)
  end
end

-- ttlOf(types, kind) returns the TTL of the locks of a type of tasks, or false if they are not taken; orders has their order.
local ttls, orders = {}, {}
local function ttlOf(types, kind)
  local ttl = ttls[kind]
  if ttl == nil then
    local _, found = string.find(types, '|' .. kind .. '=', 1, true)
    ttl = found and string.match(types, '^%d+', found + 1) or false
    ttls[kind] = ttl
    orders[kind] = found and string.match(types, '^%d+/(%l+)', found + 1)
  end
  return ttl
end

-- load() loads the functions of package line, which most calls do not need. They stay nil if the server parks no tasks.
local park, wakeReleased, parse, leaveWaiters, admit, begin, depart, ready, loaded
local function load()
  local function functions()
--PARKING--
  end
  if not loaded then
    loaded, park, wakeReleased, parse, leaveWaiters, admit, begin, depart, ready = true, functions()
  end
end

-- first(order, found, queue key, id, at) returns the place of a task that is the first of its sequence, and nil and the
-- refusal if another is, or nil if its run has to look.
local function first(order, found, key, id, at)
  load()
  if not admit or string.find(found[6], ' ', 1, true) then
    return nil
  end
  local queue = string.match(key, '^asynq:{(.*)}:')
  return admit(hashOf(key, id), #queue .. ':' .. queue .. id, found[6], order, tonumber(ARGV[at + 9]), found[3])
end

-- lock(found, queue key, id, number, at) takes the locks of all recorded keys, for the n-th task of the fetch, or none. It
-- returns the counters of the keys; what acquire does if one is held; or false.
local function lock(found, key, id, number, at)
  local types = ARGV[at + 3]
  local kind = types ~= '' and kindOf(found[1])
  local ttl = kind and ttlOf(types, kind)
  if not ttl then
    return false
  end
  local lane = string.match(key, '.*@(%d+)%-%w%w%w}:%l+$')
  for tag in string.gmatch(found[6], '(@%d+%-)%w+}') do -- the locks of another lane are not here
    if tag ~= '@' .. (lane or '') .. '-' then
      return false
    end
  end
  local order, place = orders[kind], nil
  if order then
    local ok, admitted, refusal = pcall(first, order, found, key, id, at)
    if not ok or not admitted then
      return ok and refusal or false
    end
    place = admitted
  end
  local owner = ARGV[at + 4] .. string.format('%03d', number) .. ARGV[at + 5] .. kind .. '/' .. id
  if #owner > 500 then
    owner = string.sub(owner, 1, 500)
  end
  local proposal, fence_ttl, block = ARGV[at + 6], ARGV[at + 7], tonumber(ARGV[at + 8])
  local names, n = {}, 0
  for key in string.gmatch(found[6], '[^ ]+') do
    local name = 'railtoken:lock:{' .. key .. '}'
    if spared[name] then
      return false
    end
    names[n + 1], names[n + 2], names[n + 3] = name, name .. ':fence', false
    n = n + 3
  end
  local ok, counters = pcall(acquire, names, 1, n, owner, ttl, fence_ttl, proposal, 0, block)
  if not ok or not counters or type(counters) == 'table' and counters.err then -- they cannot be had
    return false
  end
  counters = type(counters) == 'table' and counters or {counters}
  if place and counters[1] ~= 0 then
    begin(unpack(place))
  end
  return counters
end

-- waiting ends the message of a parked task: see state.lua of package line.
local waiting = '\58\29railtoken: waits for its keys\248\127\1'

-- unmarked(message) returns the message of a task that was parked as it was before, or nil if it was not parked.
local function unmarked(message)
  if message and string.byte(message, -1) == 1 and string.sub(message, -#waiting) == waiting then
    return string.sub(message, 1, -#waiting - 1)
  end
end

-- ago(woken, run) returns how long ago (us) a task was woken, as text: '0' if that is not known, and false if it was not
-- woken. The run that a wake has begun stands there afterwards, for the recall of its fetch.
local function ago(woken, run)
  local at = tonumber(woken or '')
  if not at then
    return woken and woken == run and '0'
  elseif at <= 1 then
    return '0'
  end
  return string.format('%d', math.max(ask() - at, 1))
end

-- read(task) returns what the hash of a task has: its message; the record of its wait, false for a task that has not waited; its
-- sequence; what a server of an earlier version has in place of the record; when it was woken (us); and the recorded keys.
local function read(task)
  return call('HMGET', task, 'msg', 'railtoken:wait', 'railtoken:sequence', 'railtoken:waiters', 'railtoken:woken', 'railtoken:keys')
end

-- waited(found) returns whether a task has waited.
local function waited(found)
  return found[2] or found[4] or found[5]
end

-- tell(reply, queue, id, number, found, counters, run) adds the n-th task that a fetch was granted to a reply: position of its
-- queue, ID, number, message, what is known of its waiting, the recorded keys, and what lock returned. It is false for a task
-- that has not waited and is in no sequence; else the record, how long ago the task was woken (us) or false, and its sequence. What a lock fails with, the handler's
-- own attempt meets again.
local function tell(reply, queue, id, number, found, counters, run)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = queue, id, number, found[1]
  reply[n + 5] = (found[3] or waited(found)) and {found[2], ago(found[5], run), found[3]} or false
  reply[n + 6], reply[n + 7] = found[6], counters
end

-- The tasks that this call has granted, by the names of their hashes.
local granted = {}

-- Leases of asynq that are to be noted: their ends and the IDs of the tasks, by the key of the queue's leases.
local leases = {}

-- How many more tasks this call may park, because it keeps all others waiting meanwhile; and those that it has parked: see
-- settle.
local spaces, parked = 100, nil

-- stop() notes that grant ends before it has had to: others may be behind those that it has looked at.
local function stop()
  parked = parked or {0}
  parked[1] = 1
end

-- settle(reply) notes the leases, and adds to the reply which tasks were parked, if there are any, or that grant has stopped: the list
-- of 1 if so, else 0, and of groups of tasks: position of their queue, type, recorded keys, what lock returned,
-- when they were first refused (us), how many stand before the first of them, and their IDs. It must be called after
-- grant, also if that has failed: asynq recovers only tasks with a lease.
local function settle(reply)
  reply[#reply + 1] = parked
  for key, due in pairs(leases) do
    for from = 1, #due, 1000 do
      call('ZADD', key, unpack(due, from, math.min(from + 999, #due)))
    end
  end
end

-- Groups of tasks that were refused in this call, by their recorded keys; of several types or queues the last one. A group
-- has what park_fetched.lua needs, and what the reply tells of it. Each task is refused alone if an order decides that.
local groups = {}

-- suits(group, queue, message) returns whether a group, if there is one, is of the type and the queue of a task.
local function suits(group, queue, message)
  return group and group.queue == queue and group.kind == kindOf(message)
end

-- parking() returns the function parks. Most calls need none of this.
local function parking()
  -- groupOf(queue, prefix, message, recorded, counters, at) returns the group of a task that was refused. Its tasks may be
  -- parked if their type allows that, and so many are parked on the key already, which are woken before them: of others
  -- their server decides whether they wait in its memory.
  local function groupOf(queue, prefix, message, recorded, counters, at)
    local types, kind = ARGV[at + 3], kindOf(message)
    local group = {queue = queue, kind = kind, counters = counters, alone = orders[kind]}
    local _, found = string.find(types, '|' .. kind .. '=', 1, true)
    local after, most, behind = string.match(types, '^[%d/%l]+,(%d+),(%d+),(%d+)', found + 1)
    if not after then
      return group
    end
    local key, n = nil, 0
    for each in string.gmatch(recorded, '[^ ]+') do
      n = n + 1
      if n == counters[2] then
        key = each
      end
    end
    group.waiters, group.notify = 'railtoken:waiters:{' .. key .. '}', 'railtoken:lock:{' .. key .. '}:notify'
    if call('ZCARD', group.waiters) < tonumber(behind) then
      return group
    end
    load()
    group.parks = park ~= nil
    local name, lasts = string.sub(prefix, 8, -3), counters[4]
    group.prefix, group.begin = prefix, #name .. ':' .. name
    group.look = lasts < 0 and tonumber(most) or math.min(lasts, most - after) + after
    return group
  end

  -- parks(queue, k, id, task, found, counters, at) parks a task that was refused, if that is to be, and returns whether it
  -- has. One that has waited before has its own way to the key.
  return function(queue, k, id, task, found, counters, at)
    if waited(found) then
      return false
    end
    local message, recorded = found[1], found[6]
    local group = groups[recorded]
    if not suits(group, queue, message) or group.counters ~= counters then
      local ok, new = pcall(groupOf, queue, string.match(KEYS[k], '^(.*}:)'), message, recorded, counters, at)
      group = ok and new or {}
      groups[recorded] = group
    end
    if not group.parks then
      return false
    end
    local ok, done = pcall(park, group, id, task, message, tonumber(ARGV[at + 9]))
    group.parks = ok
    if not ok or not done then
      return false
    end
    if not group.told then
      group.told = {queue, group.kind, recorded, counters, group.since, group.ahead}
      parked = parked or {0}
      parked[#parked + 1] = group.told
    end
    group.told[#group.told + 1] = id
    spaces = spaces - 1
    return true
  end
end
local parks = nil

-- Tasks that were woken in this call to follow the holder of their key in the memory of their server, by the names of their
-- hashes: they need no slot, if their key is held.
local followers = {}

-- grant(reply, first, most, at) takes up to so many tasks for a fetch, and the followers at the heads of their queues, and adds
-- them to a reply. Each is looked for in the queues by an order of its own, and by the last one if there are fewer. A paused
-- queue has no task, and one whose hash is gone is left to asynq. Long messages come in several calls, or a slow network would
-- not bring the reply in time: the reply says so.
local function grant(reply, first, most, at)
  local name, expiry, orders = ARGV[at] .. '.', ARGV[at + 2], tonumber(ARGV[at + 11])
  local open, empty = {}, {} -- queues that are not paused; and those that are, or have no task left
  local room = 1000000 -- bytes of messages
  local order, i = '', 1
  while i <= most or next(followers) do
    if i <= orders then
      order = ARGV[at + 11 + i]
    end
    local id, k, queue
    for j = 1, #order do
      queue = string.byte(order, j)
      k = first + 4 * (queue - 1)
      if not open[queue] and not empty[queue] then
        open[queue] = call('EXISTS', KEYS[k + 1]) == 0
        empty[queue] = not open[queue]
      end
      if not empty[queue] and (i <= most or followers[hashOf(KEYS[k], call('LRANGE', KEYS[k], -1, -1)[1] or '')]) then
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
    local follower = followers[task]
    followers[task] = nil
    local due = leases[KEYS[k + 3]]
    if not due then
      due = {}
      leases[KEYS[k + 3]] = due
    end
    local n = #due
    due[n + 1], due[n + 2] = expiry, id
    local found = read(task)
    local before = unmarked(found[1])
    found[1] = before or found[1]
    local message, recorded, counters = found[1], found[6], nil
    local group = recorded and groups[recorded]
    if suits(group, queue, message) and not group.alone then
      counters = group.counters
    else
      counters = recorded and lock(found, KEYS[k], id, i, at)
    end
    room = room - (message and #message or 0)
    local held = counters and counters[1] == 0
    if held and follower then
      most = most + 1
    end
    parks = parks or held and parking()
    if held and parks(queue, k, id, task, found, counters, at) then
      due[n + 1], due[n + 2] = nil, nil
      if spaces == 0 or room <= 0 then
        return stop()
      end
    else
      local fields = {'state', 'active', 'pending_since', name .. i}
      if before then
        fields[5], fields[6] = 'msg', before
      end
      if found[5] and tonumber(found[5]) then
        fields[#fields + 1], fields[#fields + 2] = 'railtoken:woken', name .. i
      end
      call('HSET', task, unpack(fields))
      granted[task] = true
      tell(reply, queue, id, i, found, counters)
      if room <= 0 then
        return i < most and stop()
      end
      i = i + 1
    end
  end
end

-- admitted(first, at, n, queue, id, run, recorded, head) takes the locks of the n-th task that an earlier fetch has taken
-- without them, because their server has found its keys in it, or parks it as grant does. The keys of a task that was parked
-- are recorded, so the wake takes them. It returns what lock does, or 0 if the task was parked or is not in that run:
-- its server must not run it. Its number is beyond those of the fetch.
local mostGranted = 500
local function admitted(first, at, n, queue, id, run, recorded, head)
  local k, kind = first + 4 * queue - 4, kindOf(head)
  local task = hashOf(KEYS[k], id)
  local now = call('HMGET', task, 'pending_since', 'state')
  if now[1] ~= run or now[2] ~= 'active' then
    return 0
  end
  ttlOf(ARGV[at + 3], kind)
  local found, group, counters = orders[kind] and read(task) or {head}, groups[recorded], nil
  found[6] = recorded
  if suits(group, queue, head) and not group.alone then
    counters = group.counters
  else
    counters = lock(found, KEYS[k], id, mostGranted + n, at)
  end
  if counters and counters[1] == 0 and spaces > 0 then
    parks = parks or parking()
    found = read(task)
    found[6] = recorded
    if parks(queue, k, id, task, found, counters, at) then
      call('HSET', task, 'railtoken:keys', recorded, 'pending_since', ARGV[at + 9]) -- it is in no run: see head.lua
      call('ZREM', KEYS[k + 3], id)
      return 0
    end
  end
  return counters
end

-- take(reply, first, most, at) does all that a fetch is to do: it takes the next tasks, and admits those of earlier fetches,
-- which come after those that were woken. It adds the answers to these as the last element of the reply, if there are any.
local function take(reply, first, most, at)
  local ok, err = pcall(grant, reply, first, most, at)
  local answers, n, from = {}, 0, at + 12 + tonumber(ARGV[at + 11])
  for a = from + 1, from + 5 * tonumber(ARGV[from]), 5 do
    n = n + 1
    local done, answer = pcall(admitted, first, at, n, tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
    answers[n] = done and answer -- after an error its run tries to lock the keys
  end
  pcall(settle, reply)
  if n > 0 then
    reply[#reply + 1] = answers
  end
  return ok, err
end
