-- Part of the scripts that fetch tasks: parks tasks that have one of their keys held, as park.lua does after a run. It must
-- be in the script that has looked at the lock: a release comes before both, or finds the task among the waiters. It runs
-- on one node alone, because the lock tells which keys it touches.
--
-- The first task of a call is taken from the active ones and parked at once, and so is the first of each set of waiters.
-- What follows is added to the same sets, by few calls at the end: see settle. Until then it stays in pending.

-- fields(message) returns numbers of asynq's message of a task by the numbers of their fields, and the name of its
-- uniqueness lock; nil when it cannot be read.
local function fields(message)
  local byte, found, at, size = string.byte, {}, 1, #message
  while at <= size do
    local tag, value, second = byte(message, at, at + 2)
    if not value then
      return nil
    end
    at = at + 2
    if value >= 128 then
      local unit, more = 128, second
      value = value - 128
      repeat
        if not more then
          return nil
        end
        value, unit, at = value + more % 128 * unit, unit * 128, at + 1
        local last = more < 128
        more = byte(message, at)
      until last
    end
    if tag % 8 == 0 then
      found[tag / 8] = value
    elseif tag % 8 == 2 then
      if tag == 82 then
        found[10] = string.sub(message, at, at + value - 1)
      end
      at = at + value
    else
      return nil
    end
  end
  return at == size + 1 and found or nil
end

-- What this call knows of the waiters of each key: the name of the set, their number, the last score, for how long the
-- holder is told of them (ms), and what is to be added. And of queues, by the names of their active tasks: how entries
-- begin, the set of tasks to be retried, and what is to be added to that.
local sets, queues = {}, {}

-- When the call came to the first task (us), as text too; whether the index has had an entry, and what is to be added.
local began, clock, entered, entries = nil, nil, false, {}

-- Whole numbers as text, and whole seconds by the delays that they end. Most tasks of a call have the same.
local texts, dues = {}, {}

-- text(number) returns a whole number as text.
local function text(number)
  local known = texts[number]
  if not known then
    known = string.format('%.0f', number)
    texts[number] = known
  end
  return known
end

-- add(key, list, 'NX' or nil) adds scores and members to a sorted set.
local function add(key, list, flag)
  if #list == 0 then
    return
  elseif flag then
    redis.call('ZADD', key, flag, unpack(list))
  else
    redis.call('ZADD', key, unpack(list))
  end
  for i = #list, 1, -1 do
    list[i] = nil
  end
end

-- settle(index) adds what is to be added. The tasks may leave pending then, and not before.
local function settle(index)
  for _, set in pairs(sets) do
    add(set.name, set.list, 'NX')
  end
  add(index, entries)
  for _, queue in pairs(queues) do
    add(queue.retry, queue.list)
  end
end

-- stands(set, entry, place, whether the task has a record, 1 to be behind those that came before, how long an idle set of
-- waiters is kept (ms)) adds an entry to the waiters, as join does. Returns how many there are, the score, and how many
-- stand before it.
local function stands(set, entry, place, recorded, behind, ttl)
  if recorded or not set.count then
    add(set.name, set.list, 'NX')
    local joined = join(set.name, entry, string.format('%.0f', place), behind, 0, ttl)
    set.count, set.last = joined[1], tonumber(redis.call('ZRANGE', set.name, -1, -1, 'WITHSCORES')[2])
    return joined[1], joined[2], tonumber(joined[3])
  end
  set.count, set.last = set.count + 1, math.max(place, set.last + 1)
  local score = string.format('%.0f', set.last)
  set.list[#set.list + 1], set.list[#set.list + 2] = score, entry
  return set.count, score, set.count - 1
end

-- park(id, active, whether it is the first of them and not in pending, its hash, its message, the keys that are recorded with
-- it, how many conflicts were noted or false, the held one of the keys, how long that is locked (ms), how long after that
-- it tries again (ms), at most (ms), its run, now (ns), index of all parked tasks, how long an idle set of waiters is kept
-- (ms)) parks a task. Returns {retry count, conflicts, first conflict (us), waiters, how many stand before it, its timer
-- (ms)}, or nil and the task is as it was: its run must decide, because the task is past its deadline, waits for another
-- key, or has several keys and was refused before.
local function park(id, active, taken, task, message, recorded, refused, key, locked, after, most, run, now, index, idle)
  local found = fields(message)
  if not found then
    return nil
  end
  local set, queue = sets[key], queues[active]
  if not set then
    set = {name = 'railtoken:waiters:{' .. key .. '}', list = {}}
    sets[key] = set
  end
  if not queue then
    local prefix = string.match(active, '^(.*}:)')
    local name = string.sub(prefix, 8, -3)
    queue = {begin = #name .. ':' .. name, retry = prefix .. 'retry', list = {}}
    queues[active] = queue
  end
  local record = refused and redis.call('HMGET', task, 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first',
    'railtoken:place', 'railtoken:waiters', 'railtoken:deadline', 'railtoken:freed') or {}
  if record[5] and record[5] ~= set.name then
    return nil
  end
  local deadline = found[9] or 0
  if deadline > 2 ^ 53 then -- it is negative
    deadline = 0
  elseif deadline > 0 and now / 1e9 >= deadline then
    return nil
  end
  if not began then
    local time = redis.call('TIME')
    began = time[1] * 1000000 + time[2]
    clock = string.format('%.0f', began)
  end
  local retried = found[6] or 0
  local conflicts, since, place = counted(record, text(retried), began, 0)
  if conflicts > 1 and key ~= recorded then
    return nil
  end
  local look = locked < 0 and most or math.min(locked, most - after) + after
  idle = math.max(idle, 2 * look)
  local entry = queue.begin .. id
  local count, score, ahead = stands(set, entry, place, refused, conflicts == 1 and 1 or 0, idle)
  if entered then
    entries[#entries + 1], entries[#entries + 2] = clock, entry
  else
    enter(index, entry, clock, 0, idle)
    entered = true
  end
  local delay = timer(look, ahead, 0)
  set.told = set.told or redis.call('PTTL', 'railtoken:lock:{' .. key .. '}:notify')
  if set.told < delay + 120000 then -- the holder must see that tasks wait, for as long as they do
    redis.call('SET', 'railtoken:lock:{' .. key .. '}:notify', '1', 'PX', math.floor(delay + 120000))
    set.told = delay + 120000
  end
  -- The field pending_since stays: asynq reads that of pending tasks alone, and sets it when a task becomes one.
  since = text(since)
  redis.call('HSET', task, 'state', 'retry', 'railtoken:run', run, 'railtoken:retried', text(retried),
    'railtoken:conflicts', text(conflicts), 'railtoken:first', since, 'railtoken:place', score, 'railtoken:look', text(look),
    'railtoken:waiters', set.name, 'railtoken:deadline', text(deadline))
  if record[7] then
    redis.call('HDEL', task, 'railtoken:freed')
  end
  keep(found[10], id, delay)
  local at = dues[delay] or due(now, delay)
  dues[delay] = at
  if taken then
    redis.call('ZADD', queue.retry, at, id)
    redis.call('LPOP', active) -- at last: whatever fails before, the task is still active
  else
    queue.list[#queue.list + 1], queue.list[#queue.list + 2] = at, id
  end
  return {retried, conflicts, since, count, ahead, math.floor(delay)}
end
