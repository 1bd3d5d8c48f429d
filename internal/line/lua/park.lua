-- Parks a task whose run ends in conflict, in place of asynq's own end of the run (docs/design.md, 5.1): it leaves
-- those that run and waits for a key, both in one step, so that a wake finds it where it waits or not at all. It must
-- be atomic: the key may be given back at any moment, the limits hold when the task joins, and a task waits for one key
-- at a time. On a Cluster its parts are steps: see park_steps.go.
--
-- KEYS  1 the task's hash   2 active   3 lease   4 retry of its queue   5 its uniqueness lock, or its hash again when it has
--       none   6 waiters of the key   7 index of all parked tasks   8 sequence of the key   9 pending of its queue
--       10 the task's hash and 11 retry of the queue that it is to wait in, unless it waits in its own
--       then, when the locks are on this Redis: the lock of the key and its notify key, and those of the further keys
-- ARGV  1 entry of the task   2 a nonce of this run   3 now (ns)   4 1 when asynq's lease must have ended
--       5 its deadline (s), 0 for none   6 its retry count   7 most waiters   8 most parked tasks
--       9 how long an idle set of waiters is kept (ms)   10 its timer if it were next (ms)
--       11 the longest timer (ms)   12 1 when the tasks of the key run in order
--       (7, 8 and 11: 0 for no limit)   13 its entry in the queue that it is to wait in, '' for its own
--       14 what asynq's message of it ends with there   15 in order, how many stand before it
--       16 how long ago it was first refused in this run (us)   17 '1' when the key is none of a lock, else ''
--       18 further keys that it waits for (awaits), or ''; never in order
--       19 all keys of the locks that its next fetch is to take, or ''   20 what says why it stands before others, or ''
--
-- Returns {outcome, conflicts, first conflict (us), waiters, the set of waiters of another key that the task was woken
-- for, or '', how many stand before it, its timer (ms), 1 when it is in the other queue, 1 when it has
-- looked at the locks}. The outcome is 'parked'; 'free' when the key was released meanwhile: then the task is
-- pending; 'again', 'not active' or 'not yet' when nothing was done (resign); 'apart', alone, when nothing was done because the
-- task has waited for a key in another lane, which this script does not reach.
local task, waiters, index, entry, now = KEYS[1], KEYS[6], KEYS[7], ARGV[1], tonumber(ARGV[3])
local id, deadline = (parse(entry)), tonumber(ARGV[5])
local home, moved = KEYS[4], 0
local unique = KEYS[5] ~= task and KEYS[5] or nil
local locks = ARGV[13] == '' and 10 or 12
local lane = laneOf(waiters)
if lane then
  local former = redis.call('HGET', task, 'railtoken:waiters') or ''
  if former ~= '' and laneOf(former) ~= lane then
    return {'apart'}
  end
end
local left, conflicts, first, place, before, us, freed = unpack(suspend(task, ARGV[2], id, now, ARGV[4], waiters, ARGV[6], ARGV[10],
  ARGV[11], ARGV[16], ARGV[5], ARGV[17], ARGV[18], ARGV[20]))
if left == 'not active' and ARGV[13] ~= '' and redis.call('HGET', KEYS[10], 'railtoken:nonce') == ARGV[2] then
  left, task, home, moved = 'again', KEYS[10], KEYS[11], 1
  local r = recordOf(task)
  conflicts, first = r and r.conflicts, r and string.format('%.0f', r.first)
end
if left ~= 'ok' then
  local again = left == 'again'
  local delay = again and tonumber(redis.call('ZSCORE', home, id) or 0) * 1000 - now / 1e6 or 0
  return {left, tonumber(conflicts or 0), first or '0', again and redis.call('ZCARD', waiters) or 0, '', '0',
    math.floor(math.max(delay, 0)), moved, again and #KEYS >= locks and 1 or 0}
end
if ARGV[19] ~= '' then
  redis.call('HSET', task, 'railtoken:keys', ARGV[19])
end
local sets, swallowed = {waiters}, ''
for key in string.gmatch(ARGV[18], '[^ ]+') do
  sets[#sets + 1] = setOf(key)
end
if before ~= '' and before ~= waiters then
  if not awaits(ARGV[18], before) and redis.call('ZREM', before, entry) == 0 then
    swallowed = before -- it was woken for that key, and will not be the one to give it back
  end
  stand(task, waiters, place)
end

-- Redis and the locker may differ for seconds: a lease that was lost, and that its holder has not missed yet, is
-- refused there and free here. A task that believed Redis a second time would run again and again meanwhile.
local looked = #KEYS >= locks and freed ~= waiters and not awaits(ARGV[18], freed)
if looked and (ARGV[12] ~= '1' or redis.call('ZRANGE', KEYS[8], 0, 0)[1] == entry) then
  for i, set in ipairs(sets) do
    if redis.call('EXISTS', KEYS[locks + 2 * i - 2]) == 0 then
      redis.call('ZREM', set, entry)
      redis.call('ZREM', index, entry)
      local r = recordOf(task)
      r.waiters, r.also, r.freed = set, '', true
      write(task, r)
      redis.call('ZREM', home, id)
      push(entry, ARGV[3], set, '')
      ready(KEYS[9], 1)
      return {'free', conflicts, first, redis.call('ZCARD', waiters), swallowed, '0', 0, 0, 1}
    end
  end
end

-- Some of the waiters may be gone, because they were deleted or archived by hand. A few are checked.
local function prune(others)
  for _, other in ipairs(others) do
    local _, _, hash = parse(other)
    if ended(hash) == 1 then
      redis.call('ZREM', index, other)
      redis.call('ZREM', waiters, other)
    end
  end
end

-- It goes to another queue with all that asynq and this package know of it, unless a task there has its ID.
if ARGV[13] ~= '' and redis.call('RENAMENX', task, KEYS[10]) == 1 then
  redis.call('ZADD', KEYS[11], redis.call('ZSCORE', home, id), id)
  redis.call('ZREM', home, id)
  local at = redis.call('ZSCORE', KEYS[8], entry)
  if at then
    redis.call('ZREM', KEYS[8], entry)
    redis.call('ZADD', KEYS[8], at, ARGV[13])
  end
  redis.call('ZREM', waiters, entry)
  redis.call('ZREM', index, entry)
  task, home, entry, moved = KEYS[10], KEYS[11], ARGV[13], 1
  redis.call('HSET', task, 'msg', string.sub(redis.call('HGET', task, 'msg'), 1, -#waiting - 1) .. ARGV[14] .. waiting)
end

local count, ahead, nearest, limit = 0, 0, 0, nil
local full = enter(index, entry, us, ARGV[8], ARGV[9])
if #full > 0 then
  prune(full)
  full = enter(index, entry, us, ARGV[8], ARGV[9])
end
if #full > 0 then
  limit = 'total'
else
  local behind = conflicts == 1 and ARGV[20] == '' and 1 or 0
  local joined = join(waiters, entry, place, behind, ARGV[7], ARGV[9])
  if #joined > 3 then
    prune({unpack(joined, 4)})
    joined = join(waiters, entry, place, behind, ARGV[7], ARGV[9])
  end
  count = joined[1]
  if #joined > 3 then
    limit = 'waiters'
  else
    ahead = tonumber(joined[3])
    if joined[2] ~= place then
      stand(task, waiters, joined[2])
    end
    nearest = ahead
    for i = 2, #sets do -- where there is no room, it waits for the other keys
      nearest = math.min(nearest, tonumber(join(sets[i], entry, place, behind, ARGV[7], ARGV[9])[3]) or nearest)
    end
  end
end
if ARGV[12] == '1' then
  ahead = tonumber(ARGV[15])
  nearest = ahead
end
local delay = timer(tonumber(ARGV[10]), nearest, tonumber(ARGV[11]))
if limit then
  if limit == 'total' then
    count = discard(waiters, entry)[1]
  else
    redis.call('ZREM', index, entry)
  end
  stand(task, '', first)
  delay = unplaced(tonumber(ARGV[10]), count, conflicts, tonumber(ARGV[11]))
end
for i = locks + 1, #KEYS, 2 do -- the holder must see that tasks wait, for as long as they do
  if redis.call('PTTL', KEYS[i]) < delay + 120000 then
    redis.call('SET', KEYS[i], '1', 'PX', math.floor(delay + 120000))
  end
end
redis.call('ZADD', home, 'XX', due(now, delay, deadline), id)
keep(unique, id, delay)
return {'parked', conflicts, first, count, swallowed, string.format('%.0f', ahead), math.floor(delay), moved, looked and 1 or 0}
