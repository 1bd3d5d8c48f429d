-- Part of the scripts: asynq's state of a task, in the slot of its queue. Each function is a step of its own on a
-- Cluster, where its first argument is KEYS[1] and the others are ARGV. It must be atomic: asynq may change the state
-- at any moment. What check and promote need is declared as KEYS  1 the task's hash   2 retry   3 pending of its queue,
-- so that neither begins while they move.

-- ended(task) returns 1 when the task has gone for good, unless an operator fetches it back: it cannot wait.
local function ended(task)
  local state = redis.call('HGET', task, 'state')
  return (not state or state == 'archived' or state == 'completed') and 1 or 0
end

-- timer(look, how many stand before it, longest or 0) returns when a parked task tries again if no wake comes
-- (all in ms). The first eight do so soon, and the one that gets the key wakes the next. If the others did the same,
-- many waiters would keep Redis busy in vain. They try later, the further back they stand: up to 10 min for up to
-- 30 000 waiters, and of more waiters one tries every 20 ms.
local function timer(look, ahead, longest)
  local latest = math.max(600000, ahead * 20)
  if ahead > 0 and look < latest then
    look = math.min(look * (1 + math.floor(ahead / 8)), latest)
  end
  return longest > 0 and math.min(look, longest) or look
end

-- unplaced(look, waiters, conflicts, longest or 0) returns when a task tries again that no wake finds, because it found
-- the waiters full: as one behind all of them, and later each time (ms).
local function unplaced(look, count, conflicts, longest)
  look = timer(look, count, 0)
  for _ = 2, conflicts do
    if look >= 600000 then
      break
    end
    look = math.min(2 * look, 600000)
  end
  return longest > 0 and math.min(look, longest) or look
end

-- due(now (ns), delay (ms), deadline (s), 0 for none) returns when a delay has ended, in the whole seconds that asynq
-- keeps, and never before it. A task whose deadline comes first is due then, because asynq ends it.
local function due(now, delay, deadline)
  local at = math.ceil(now / 1e9 + delay / 1000)
  if deadline > 0 then
    at = math.min(at, deadline)
  end
  return string.format('%d', at)
end

-- waiting ends asynq's message of a parked task: the last error, whose number stands before its size, and a field that asynq
-- does not know. asynq reads the last of several errors. The bytes of that field are not UTF-8, so no text of a producer ends
-- like this. grant.lua takes it off when the task is fetched: what the task has failed with before is its last error again.
local waiting = '\58\29railtoken: waits for its keys\248\127\1'

-- resign(task, nonce, ID, now (ns), 1 when asynq's lease must have ended) takes an active task from those that run.
-- KEYS  1 the task's hash  2 active 3 lease of its queue. The nonce is the name of its run, if a Conn has fetched it: a
-- server that speaks to Redis by itself leaves it without one. Returns 'ok' and asynq's message of the task; 'again'
-- when a call with the same nonce did so before; and 'not active' when it is active no more, or in another run.
local function resign(task, nonce, id, now, late)
  local run = redis.call('HMGET', task, 'railtoken:nonce', 'pending_since', 'msg')
  if run[1] == nonce then
    return 'again'
  elseif run[2] and run[2] ~= nonce then
    return 'not active'
  end
  if late == '1' then
    local ends = tonumber(redis.call('ZSCORE', KEYS[3], id) or nil)
    if not ends then
      return 'not active'
    elseif ends > tonumber(now) / 1e9 then
      return 'not yet'
    end
  end
  if redis.call('LREM', KEYS[2], 0, id) == 0 then
    return 'not active'
  end
  redis.call('ZREM', KEYS[3], id)
  redis.call('HSET', task, 'railtoken:nonce', nonce)
  return 'ok', run[3]
end

-- keep(uniqueness lock or nil, ID, delay (ms)) has asynq refuse duplicates of a unique task until 2 min after the
-- delay, unless its lock has ended: a task that waits on parks anew by then.
local function keep(lock, id, delay)
  if lock and redis.call('GET', lock) == id and redis.call('PTTL', lock) < delay + 120000 then
    redis.call('PEXPIRE', lock, math.floor(delay + 120000))
  end
end

-- shelve(task, retry set, ID, now (ns), delay (ms), message, deadline (s) or 0, uniqueness lock or nil) puts a task that was taken
-- from those that run into a retry set. No counter moves. It comes first, right after the task was taken: whatever
-- fails after it in the script, its timer brings the task back.
local function shelve(task, retry, id, now, delay, message, deadline, lock)
  redis.call('ZADD', retry, due(now, delay, deadline), id)
  if message then
    redis.call('HSET', task, 'state', 'retry', 'msg', message .. waiting)
  else
    redis.call('HSET', task, 'state', 'retry')
  end
  keep(lock, id, delay)
end

-- postpone(task, nonce, ID, now (ns), 1 when asynq's lease must have ended, deadline (s) or 0, delay (ms)) has a task tried
-- again after a delay. KEYS  1 the task's hash   2 active   3 lease   4 retry of its queue   5 its uniqueness lock, if
-- it has one. Returns what resign does.
local function postpone(task, nonce, id, now, late, deadline, delay)
  local left, message = resign(task, nonce, id, now, late)
  if left == 'ok' then
    shelve(task, KEYS[4], id, now, tonumber(delay), message, tonumber(deadline), KEYS[5])
  end
  return left
end

-- suspend(task, nonce, ID, now (ns), 1 when asynq's lease must have ended, waiters, retry count, its timer
-- if it is next (ms), longest or 0, how long ago it was first refused in this run (us),
-- deadline, own, further keys, foremost: see note) counts a conflict and shelves the task.
-- KEYS  1 the task's hash   2 active   3 lease   4 retry of its queue   5 its uniqueness lock, if it has one, or its hash.
--       Returns {what resign does, and what note does}. After 'again' that is as it was left, as far as the waiters before.
local function suspend(task, nonce, id, now, late, waiters, retried, look, longest, ago, deadline, own, also, foremost)
  local left, message = resign(task, nonce, id, now, late)
  if left ~= 'ok' then
    local met = left == 'again' and recordOf(task) or {conflicts = 0, first = 0, place = 0, waiters = ''}
    return {left, met.conflicts, string.format('%.0f', met.first), string.format('%.0f', met.place), met.waiters, '0'}
  end
  shelve(task, KEYS[4], id, now, timer(tonumber(look), 0, tonumber(longest)), message, tonumber(deadline), KEYS[5] ~= task and KEYS[5] or nil)
  return {left, unpack(note(task, waiters, retried, look, ago, deadline, own, also, foremost))}
end

-- check(task, waiters, now (ns)) returns what a wake finds, asynq's state, the record of the task's wait, and the further
-- keys that it waits for, or ''. KEYS  4, on a
-- Cluster, the queue's mark that it is paused, unless that does not matter:
--   'held'       its queue is paused
--   'here'       it can be woken
--   'elsewhere'  it waits for another key, and its entry here is left over
--   'overdue'    its deadline has passed: asynq does not run its handler again, and archives it in the end
--   'runs'       its timer has brought it back, and it tries its key by itself
--   'gone'       it cannot be woken: it has ended, or waits for no key and is a later task with the ID of one that did
local function check(task, waiters, now)
  if KEYS[4] and redis.call('EXISTS', KEYS[4]) == 1 then
    return {'held', '', '', ''}
  end
  local found = redis.call('HMGET', task, 'state', 'railtoken:wait', 'railtoken:waiters')
  local state = found[1] or ''
  local deadline, _, among, also = glance(found[2])
  if among ~= found[3] then -- there is none, or a server of an earlier version has parked the task since, or run it
    deadline, among, also = 0, found[3] or '', ''
  end
  local function is(verdict)
    return {verdict, state, found[2] or '', also}
  end
  if among == '' then
    return is('gone')
  elseif among ~= waiters and not awaits(also, waiters) then
    return is('elsewhere')
  elseif state == 'active' then
    return is('runs')
  elseif state == 'retry' or state == 'pending' then
    return is(deadline > 0 and deadline <= now / 1e9 and 'overdue' or 'here')
  end
  return is('gone')
end

-- pull(entry, asynq's state) takes a task from where it waits. Returns whether it was there; it must then be pushed.
-- One that is pending, because its timer or an operator has brought it back, comes by itself: only the two ends of the
-- list are searched for it, because a search of the whole backlog would cost too much.
local function pull(entry, state)
  local id, prefix = parse(entry)
  if state ~= 'pending' then
    return redis.call('ZREM', prefix .. state, id) == 1
  end
  for _, from in ipairs({1, -1}) do -- at the tail, where it was pushed, first
    if redis.call('LPOS', prefix .. 'pending', id, 'RANK', from, 'MAXLEN', 1000) then
      return redis.call('LREM', prefix .. 'pending', from, id) == 1
    end
  end
  return false
end

-- push(entry, now (ns), waiters, further keys that it waits for or '') puts a task that was pulled at the head of its queue, and
-- notes when (us, by the server's clock, which that of the caller may differ from): it does not come by its own timer. From
-- then on it waits for the key of these waiters alone, for which it is woken: its entries in other sets are left over.
local function push(entry, now, waiters, also)
  local id, prefix, task = parse(entry)
  redis.call('HSET', task, 'state', 'pending', 'pending_since', now, 'railtoken:woken', string.format('%d', micros()))
  redis.call('RPUSH', prefix .. 'pending', id)
  if also ~= '' then
    local r = recordOf(task)
    r.waiters, r.also = waiters, ''
    write(task, r)
  end
end

-- hasten(task, entry, now (ns)) shortens the timer of a parked task to that of the next waiter.
-- KEYS  1 the task's hash 2 retry of its queue
local function hasten(task, entry, now)
  local id, prefix = parse(entry)
  local _, look = glance(redis.call('HGET', task, 'railtoken:wait'))
  if look and look > 0 then
    redis.call('ZADD', prefix .. 'retry', 'XX', 'LT', due(now, look + 1000, 0), id)
  end
end

-- defer(task, entry, now (ns), look, how many stand before it, longest or 0, conflicts when it has found no room, else
-- 0) lengthens the timer of a parked task, because others stand before it. Returns when (ms). KEYS  1 the task's hash
-- 2 retry of its queue   4 its uniqueness lock, if it has one
local function defer(task, entry, now, look, ahead, longest, conflicts)
  local id, prefix = parse(entry)
  local delay = timer(tonumber(look), tonumber(ahead), tonumber(longest))
  if tonumber(conflicts) > 0 then
    delay = unplaced(tonumber(look), tonumber(ahead), tonumber(conflicts), tonumber(longest))
  end
  redis.call('ZADD', prefix .. 'retry', 'XX', due(now, delay, glance(redis.call('HGET', task, 'railtoken:wait')) or 0), id)
  keep(KEYS[4], id, delay)
  return math.floor(delay)
end

-- promote(task, waiters, entry, now (ns)) moves a task to the head of its queue, if it can be woken. Returns 'woken',
-- or what check found.
local function promote(task, waiters, entry, now)
  local found = check(task, waiters, now)
  if found[1] ~= 'here' then
    return found[1]
  elseif not pull(entry, found[2]) then
    return 'gone'
  end
  push(entry, now, waiters, found[4])
  local _, prefix = parse(entry)
  ready(prefix .. 'pending', 1)
  return 'woken'
end
