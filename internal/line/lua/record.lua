-- Part of the scripts: the record of a task's wait, in the slot of its queue. Each function is a step of its own on a Cluster,
-- where its first argument is KEYS[1] and the others are ARGV; each is atomic, since two runs of one task may be under
-- way.
--
-- The record is the field railtoken:wait of asynq's hash of the task, so that it goes with the task, with blanks between:
--   retried     the retry count that the conflicts are for: they are counted anew when the handler has run
--   deadline    of the task (s), 0 for none: a wake need not read the message for it, with all of the payload
--   offset      by how much its place among the waiters, a score, is behind the first conflict (us)
--   conflicts   and when the first was (us)
--   look        its timer if it were next (ms)
--   marks       1 if the key is none of a lock, and 2 if it found the key free when it was to wait for it
--   keys        the key whose waiters it is among or was woken from, encoded, and further ones (awaits); none when it is among no
--               waiters
-- Package line reads it, too: see wait.go. The field railtoken:waiters names the waiters once more, for servers of an earlier version,
-- which know nothing else: they wake no task without it, and a record whose waiters are others is older than what they have noted.
-- When it was woken is a field of its own, railtoken:woken, because the fetch changes it.

-- rest(conflicts, first, look, marks, waiters or '', further keys or '') returns what packed ends with.
local function rest(conflicts, first, look, marks, waiters, also)
  local keys = waiters ~= '' and ' ' .. string.sub(waiters, 20, -2) .. also or ''
  return string.format(' %d %d %d %d', conflicts, first, look, marks) .. keys
end

-- packed(retried, deadline, offset, what rest returns) returns a record.
local function packed(retried, deadline, offset, after)
  return string.format('%s %d %d', retried, deadline, offset) .. after
end

-- setOf(key) returns the name of the set of waiters of what a record ends with.
local function setOf(key)
  return key ~= '' and 'railtoken:waiters:{' .. key .. '}' or ''
end

-- unpacked(text) returns the fields of a record; nil if there is none.
local function unpacked(text)
  local retried, deadline, offset, conflicts, first, look, marks, key, further =
    string.match(text or '', '^(%d+) (%-?%d+) (%-?%d+) (%d+) (%d+) (%d+) (%d) ?(%S*)(.*)$')
  if not retried then
    return nil
  end
  return {retried = retried, deadline = tonumber(deadline), conflicts = tonumber(conflicts), first = tonumber(first),
    place = first + offset, look = tonumber(look), own = marks % 2 == 1, freed = tonumber(marks) >= 2,
    waiters = setOf(key), also = further}
end

-- glance(text) returns what a wake needs of a record, in a quarter of the time: the deadline (s), the timer if it were next (ms),
-- the waiters or '', and the further keys; nothing if there is none.
local function glance(text)
  local deadline, look, key, further = string.match(text or '', '^%d+ (%-?%d+) %-?%d+ %d+ %d+ (%d+) %d ?(%S*)(.*)$')
  if deadline then
    return tonumber(deadline), tonumber(look), setOf(key), further
  end
end

-- recordOf(task) returns the record of a task, or nil.
local function recordOf(task)
  local found = redis.call('HMGET', task, 'railtoken:wait', 'railtoken:waiters')
  local r = unpacked(found[1])
  return r and r.waiters == found[2] and r or nil
end

-- write(task, record) writes the record of a task.
local function write(task, r)
  redis.call('HSET', task, 'railtoken:wait', packed(r.retried, r.deadline, r.place - r.first,
    rest(r.conflicts, r.first, r.look, (r.own and 1 or 0) + (r.freed and 2 or 0), r.waiters, r.also)), 'railtoken:waiters', r.waiters)
end

-- forget(task) clears the record. Returns how much of it there was.
local function forget(task)
  return redis.call('HDEL', task, 'railtoken:wait', 'railtoken:waiters', 'railtoken:woken', 'railtoken:foremost')
end

-- note(task, waiters, retry count, its timer if it were next (ms), how long ago it was first refused in
-- this run (us), deadline, '1' when it is a conflict of the program's own, else '', further keys or '', what says why
-- it stands before others, or '') counts a conflict of a task that is there. Returns {conflicts, first conflict (us), place, waiters before or '', now (us), waiters of the key that it had found free before or ''}. When the waiters
-- before is another one, the record names that until stand is called: the task must have left it by then.
local function note(task, waiters, retried, look, ago, deadline, own, also, foremost)
  local r, now = recordOf(task), micros()
  local before, freed = r and r.waiters or '', ''
  if not r or r.retried ~= retried then
    r = {retried = retried, conflicts = 0, first = 0}
  elseif r.freed then
    freed = before
  end
  if r.first <= 0 or r.first > now then
    r.first = now - tonumber(ago)
  end
  local had = r.place
  r.conflicts, r.place, r.look, r.deadline = r.conflicts + 1, had or r.first, tonumber(look), tonumber(deadline)
  if foremost ~= '' and (not had or redis.call('HGET', task, 'railtoken:foremost') ~= foremost) then
    r.place = r.first - 4e15 -- below zero, in the order of their first conflicts
    redis.call('HSET', task, 'railtoken:foremost', foremost)
  elseif foremost == '' and r.place < 0 and redis.call('HDEL', task, 'railtoken:foremost') == 1 then
    r.place = r.first -- its strategy is another one now
  end
  if foremost ~= '' and not redis.call('HGET', task, 'railtoken:since') then
    redis.call('HSET', task, 'railtoken:since', string.format('%.0f', r.first))
  end
  r.own, r.freed, r.waiters, r.also = own == '1', false, before == '' and waiters or before, also
  write(task, r)
  return {r.conflicts, string.format('%.0f', r.first), string.format('%.0f', r.place), before, string.format('%.0f', now), freed}
end

-- stand(task, waiters, place) notes the set and the place of a task that still exists; none when waiters is ''. Returns 1, or 0
-- when it is gone.
local function stand(task, waiters, place)
  local r = recordOf(task)
  if not r then
    return 0
  end
  r.waiters, r.place, r.also = waiters, tonumber(place), waiters ~= '' and r.also or ''
  write(task, r)
  return 1
end

-- leave(task) clears the record of a task whose run ends. Returns {1 when its entry must go, else 0; how much of a
-- record there was}: when asynq has given a run up and begun another, the entry and the record are that one's.
local function leave(task)
  local state = redis.call('HGET', task, 'state')
  if state == 'retry' or state == 'pending' then
    return {0, 0}
  end
  return {1, forget(task)}
end
