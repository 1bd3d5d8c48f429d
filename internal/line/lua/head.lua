-- Part of the scripts: what makes an entry of a sequence its head, in the slot of the task's queue. Each function is a step
-- of its own on a Cluster, where its first argument is KEYS[1] and the others are ARGV. It must be atomic: asynq may change
-- the state at any moment.
--
-- An entry stands for one enqueue of its task. The task's hash names its sequence, in the field railtoken:sequence: the name
-- of the sequence, a blank, and how the task keeps its position. The hash goes with the task, so an entry that a deleted task
-- has left says nothing about a later task with the same ID, nor about one that has another key by now. How is
--   enqueued   its producer is about to add it
--   joined     its producer has added it, and it has not run yet; it keeps its position until its handler says otherwise
--   fifo       it loses its position when it fails
--   strict     it keeps its position when it fails

-- belongs(mark, sequence) returns whether the field of a task names a sequence.
local function belongs(mark, sequence)
  return mark and string.sub(mark, 1, #sequence + 1) == sequence .. ' '
end

-- enlist(task, sequence, how) notes the sequence of a task before the task joins it. Returns {the task's state or '', 1 when
-- an entry that is there must be that of an earlier enqueue; 0 when it is the task's; -1 when a producer has nothing to add,
-- because the task is gone or in another sequence}. A producer says 'joined', and is not the first when the task has run
-- meanwhile. On one node, state and mark are what the caller has read.
local function enlist(task, sequence, how, state, mark)
  if not state then
    state, mark = unpack(redis.call('HMGET', task, 'state', 'railtoken:sequence'))
    state = state or ''
  end
  local mine = belongs(mark, sequence)
  local fresh = not mine or mark == sequence .. ' enqueued'
  if how == 'joined' then
    if mark ~= sequence .. ' enqueued' then
      return {state, mine and 0 or -1}
    end
  elseif state == '' then
    return {state, 1}
  end
  if mark ~= sequence .. ' ' .. how then
    redis.call('HSET', task, 'railtoken:sequence', sequence .. ' ' .. how)
  end
  return {state, fresh and 1 or 0}
end

-- head(task, sequence, ID, now (ns), how long ago (s) asynq's lease on it must have ended for its worker to be dead, and for
-- asynq's recoverer to be at it) returns {what it is at the front of its sequence, asynq's state, when (s) it runs again or
-- its lease ends, or '0'; its deadline (s), '' when that is not known}.
-- KEYS  1 the task's hash   2 lease   3 retry   4 scheduled of its queue, when they must be declared
--   'gone'     it is no head, and its entry can go: it has ended, this is not its sequence, or it has failed under FIFO and is
--              retried much later. It is still there because its worker died, or a server without railtoken has run it: a
--              handler that fails under FIFO has left
--   'runs'     it is active
--   'lost'     it is active, and its worker must have died: whoever locks the key may bring it back
--   'left'     it is active, its worker has died, and asynq's recoverer may be at it
--   'comes'    it is pending
--   'waits'    it is parked, or was put off, by railtoken
--   'failed'   it has failed, and keeps its position until asynq retries it
--   'later'    it is scheduled
local soon = 60 -- for how long (s) the others wait for the retry of a task that did not leave its sequence
local function head(task, sequence, id, now, lost, left)
  local found = redis.call('HMGET', task, 'state', 'railtoken:sequence', 'railtoken:wait', 'railtoken:nonce', 'pending_since')
  local state, mark, prefix = found[1] or '', found[2], string.sub(task, 1, -#id - 3)
  local deadline = glance(found[3])
  local function is(verdict, at)
    return {verdict, state, at or '0', deadline and tostring(deadline) or ''}
  end
  if state == '' or state == 'archived' or state == 'completed' or not belongs(mark, sequence) then
    return is('gone')
  elseif state == 'active' then
    local ends = redis.call('ZSCORE', prefix .. 'lease', id)
    local ago = ends and now / 1e9 - ends
    if not ends or ago > tonumber(lost) and ago < tonumber(left) then
      return is('lost', ends)
    end
    return is(ago < tonumber(left) and 'runs' or 'left', ends)
  elseif state == 'retry' then
    local due = redis.call('ZSCORE', prefix .. 'retry', id)
    -- asynq has ended the run that a fetch has named here, unless it is that of a park; a number is when it was enqueued. A
    -- server that speaks to Redis by itself names none.
    local run, waits = found[5], found[4] or deadline
    if run then
      waits = run == found[4] or string.find(run, '^%d+$')
    end
    if waits then
      return is('waits', due)
    elseif mark == sequence .. ' fifo' and (not due or due - now / 1e9 > soon) then
      return is('gone')
    end
    return is('failed', due)
  elseif state == 'scheduled' then
    return is('later', redis.call('ZSCORE', prefix .. 'scheduled', id))
  end
  return is('comes')
end
