-- Part of the scripts that fetch tasks: parks tasks of which one key is held and that have never been refused, as park.lua
-- parks them after a run; a test compares what both leave. It must be in the script that has looked at the lock: a
-- release comes before both, or finds the task among the waiters. It runs on one node alone, because the lock tells
-- which keys it touches.

-- fields(message) returns numbers of asynq's message of a task by the numbers of their fields, and the name of its
-- uniqueness lock; nil when it cannot be read, or has fields whose numbers take more than a byte.
local function fields(message)
  local byte, found, at, size = string.byte, {}, 1, #message
  while at <= size do
    local tag, value, second = byte(message, at, at + 2)
    if not value or tag >= 128 then
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

-- The time of this call as text, once it has parked a task; and what it knows of sets of waiters, by their names: how many there
-- are, the last place, and for how long the holder is told of them (ms).
local clock, sets = nil, {}

-- enroll(group, entry) adds the first task of a group to the index and the waiters, and returns its place among them.
-- What may fail in a park fails here.
local function enroll(group, entry)
  clock = clock or string.format('%d', micros())
  local idle = math.max(idle_waiters, 2 * group.look)
  group.index = indexOf(parked, group.waiters)
  enter(group.index, entry, clock, 0, idle)
  local joined = join(group.waiters, entry, clock, 1, 0, idle)
  local set = sets[group.waiters] or {told = redis.call('PTTL', group.notify)}
  sets[group.waiters] = set
  set.count, set.last = joined[1], tonumber(joined[2])
  group.set, group.since, group.ahead = set, clock, set.count - 1
  group.record = rest(1, micros(), group.look, 0, group.waiters, '')
  return joined[2]
end

-- park(group, id, task, message, now (ns)) parks an active task that asynq has no lease on. It returns false, and the task
-- is as it was, when its run must decide: its deadline has passed, or its message cannot be read. A group is of tasks
-- of one type in one queue that found the same key held: the prefix of the names of the queue's keys, and how the
-- entries of its tasks begin; the waiters and the notify key of the key; and the tasks' timer if they are next (ms). It
-- is told how many stand before the first of its tasks (ahead), and when that was first refused (since, us).
local function park(group, id, task, message, now)
  local found = fields(message)
  local deadline = found and found[9] or 0
  if deadline > 2 ^ 53 then -- it is negative
    deadline = 0
  end
  if not found or deadline > 0 and now / 1e9 >= deadline then
    return false
  end
  local entry, place, set = group.begin .. id, nil, group.set
  if set then
    set.count, set.last = set.count + 1, math.max(micros(), set.last + 1)
    place = set.last
    redis.call('ZADD', group.waiters, string.format('%d', place), entry)
    redis.call('ZADD', group.index, clock, entry)
  else
    place = enroll(group, entry)
    set = group.set
  end
  local delay = timer(group.look, set.count - 1, 0)
  if delay ~= group.delay then
    group.delay, group.due = delay, due(now, delay, 0)
  end
  local at = deadline > 0 and due(now, delay, deadline) or group.due
  if set.told < delay + 120000 then -- the holder must see that tasks wait, for as long as they do
    set.told = delay + 120000
    redis.call('SET', group.notify, '1', 'PX', math.floor(set.told))
  end
  keep(found[10], id, delay)
  redis.call('HDEL', task, 'pending_since') -- asynq sets it when the task becomes pending; until then it costs memory
  redis.call('HSET', task, 'state', 'retry', 'msg', message .. waiting,
    'railtoken:wait', packed(found[6] or 0, deadline, place - micros(), group.record), 'railtoken:waiters', group.waiters)
  redis.call('ZADD', group.prefix .. 'retry', at, id)
  redis.call('LREM', group.prefix .. 'active', 1, id) -- at last: whatever fails before, the task is still active
  return true
end
