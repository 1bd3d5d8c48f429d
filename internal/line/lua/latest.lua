-- Enqueues a task of which only the latest payload is to run (docs/design.md, 5.9). If one of the same record waits, that one gets
-- the message of this one, and its ID stays. It must be atomic: the task that waits may be fetched at any moment.
-- asynq's own script is the function enqueue, as in enqueue.lua.
--
-- KEYS  asynq's, then  1 the task's hash   2 pending   3 retry   4 scheduled of its queue   5 the record
--       6 on a Cluster, the hash of the task that the record names, as the caller knows it, or again the record
-- ARGV  asynq's, then  1 a name for this call, that no other has   2 the task's keys, encoded, with blanks between   3 its ID
--       4 where that begins in asynq's message   5 Quiet (ms)   6 Most (ms)   7 how long the record is kept (ms)
--       8 the task's deadline (s), 0 for none
--
-- The message's last header ends with the number of the payload, in 16 digits, a blank and the task's ID, as latestHeader has written
-- it. A worker has the number of what it has fetched, whatever comes meanwhile. IDs are asynq's own, of 36 characters.
--
-- Returns {1, the ID under which the payload runs, its state, when it is due (s), '0' for now, 1 when the payload of another call was
-- replaced}; {2, an ID} if the sixth key is not the hash of that task; or what asynq's script does when nothing was enqueued.
--
-- The record is a hash:
--   newest      the ID of the newest task
--   number      of its payload. Later payloads have larger numbers, also after the record was lost: they are times (us)
--   first       when the oldest payload came with which no run has begun (ms)
--   calls       the names of the last four calls, any of which may be sent again, each with 1 if it has replaced a payload, else 0
--   ran, by     the largest number with which a run has begun, and its task (latest_run.lua)
local task, pending, retry, scheduled, record = KEYS[K + 1], KEYS[K + 2], KEYS[K + 3], KEYS[K + 4], KEYS[K + 5]
local call, keys, id, at = ARGV[A + 1], ARGV[A + 2], ARGV[A + 3], tonumber(ARGV[A + 4])
local quiet, most, deadline = tonumber(ARGV[A + 5]), tonumber(ARGV[A + 6]), tonumber(ARGV[A + 8])
local now = math.floor(micros() / 1000)
local before, number, first, calls = unpack(redis.call('HMGET', record, 'newest', 'number', 'first', 'calls'))
local other = before and string.sub(task, 1, -#id - 1) .. before
if other and KEYS[K + 6] and KEYS[K + 6] ~= other then
  return {2, before}
end
calls = calls or ''
local known = string.find(calls, call, 1, true)
if known then
  local at = known + #call
  return {1, before, redis.call('HGET', other, 'state') or '', redis.call('ZSCORE', scheduled, before) or '0',
    tonumber(string.sub(calls, at, at))}
end
number = string.format('%016.0f', math.max(micros(), tonumber(number or 0) + 1))

-- messageOf(ID) returns the message with this ID and the number.
local function messageOf(one)
  return string.sub(ARGV[1], 1, at - 1) .. one .. string.sub(ARGV[1], at + #id, -(16 + 1 + #id) - 1) .. number .. ' ' .. one
end

-- place(ID, hash, whether it is due now) puts a task where it waits until it is due. Returns its state.
local due = '0'
local function place(one, hash, soon)
  if quiet == 0 or soon then
    redis.call('HSET', hash, 'state', 'pending', 'pending_since', string.format('%.0f', now * 1e6))
    redis.call('LPUSH', pending, one)
    return 'pending'
  end
  due = string.format('%.0f', math.ceil(math.min(now + quiet, first + most) / 1000))
  redis.call('HSET', hash, 'state', 'scheduled')
  redis.call('HDEL', hash, 'pending_since')
  redis.call('ZADD', scheduled, due, one)
  return 'scheduled'
end

-- One that was cancelled is to end, one with items has done some of them, and one that its handler has parked, or that waits for keys
-- of several items, has begun: it waits for what the new payload may not need.
local state, old, cancelled, sequence, items, r
if other then
  state, old, cancelled, sequence, items = unpack(redis.call('HMGET', other, 'state', 'msg', 'railtoken:cancel', 'railtoken:sequence',
    'railtoken:items'))
  r = recordOf(other)
end
local waits = (state == 'pending' or state == 'scheduled' or state == 'retry') and
  not (cancelled or items or r and (r.own or r.also ~= ''))
if waits then
  local message = messageOf(before)
  local parked = state == 'retry' and string.sub(old, -#waiting) == waiting
  redis.call('HSET', other, 'msg', parked and message .. waiting or message)
  redis.call('HDEL', other, 'result')
  if keys ~= '' then
    redis.call('HSET', other, 'railtoken:keys', keys)
  end
  if redis.call('HGET', other, 'railtoken:since') then -- with the new payload it is a new task
    redis.call('HSET', other, 'railtoken:since', string.format('%.0f', micros()))
  end
  first = tonumber(first)
  if r and (parked or state ~= 'retry') then -- its place stays, but its wait begins anew
    r.retried, r.deadline, r.first, r.conflicts = '0', deadline, micros(), math.min(r.conflicts, 1)
    write(other, r)
  end
  if parked then
    if deadline > 0 then
      redis.call('ZADD', retry, 'XX', 'LT', deadline, before)
    end
    due = redis.call('ZSCORE', retry, before)
  elseif state == 'retry' then -- a run has begun with the payload before; in order, others may wait for this one
    first = now
    forget(other)
    redis.call('ZREM', retry, before)
    state = place(before, other, sequence)
  elseif state == 'scheduled' then
    redis.call('ZREM', scheduled, before)
    state = place(before, other)
  end
  id = before
else
  ARGV[1], state = messageOf(id), 'pending'
  local outcome = enqueue()
  if outcome ~= 1 then
    return outcome
  end
  if keys ~= '' then
    redis.call('HSET', task, 'railtoken:keys', keys)
  end
  first = now
  if quiet > 0 then
    redis.call('LREM', pending, 1, id)
    state = place(id, task)
  end
end
redis.call('HSET', record, 'newest', id, 'number', number, 'first', string.format('%.0f', first), 'calls',
  string.sub(call .. (waits and '1' or '0') .. calls, 1, 4 * (#call + 1)))
redis.call('PEXPIRE', record, ARGV[A + 7])
if state == 'pending' then
  ready(pending, 1)
end
return {1, id, state, due, waits and 1 or 0}
