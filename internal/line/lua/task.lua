-- Part of the scripts: the entries of sets of waiters. Shared by every step that is told a task by its entry.
--
-- An entry is the length of the queue's name, a colon, the queue and the task's ID. The names of the task's keys are
-- asynq's own (v0.26): hash asynq:{queue}:t:id with field state, sorted set asynq:{queue}:retry, list
-- asynq:{queue}:pending whose right end is its head.

-- parse(entry) returns the task's ID, the prefix of its queue's keys, and the name of its hash. Of what is no entry it
-- returns the names of a task that cannot be, and so it counts as gone.
local function parse(entry)
  local size, rest = string.match(entry, '^(%d+):(.*)$')
  if not size or tonumber(size) > #rest then
    size, rest = '0', ''
  end
  local queue, id = string.sub(rest, 1, tonumber(size)), string.sub(rest, tonumber(size) + 1)
  local prefix = 'asynq:{' .. queue .. '}:'
  return id, prefix, prefix .. 't:' .. id
end

-- micros() returns the time (us) by the server's clock: one for all of a script, which nothing interrupts.
local began = nil
local function micros()
  if not began then
    local time = redis.call('TIME')
    began = time[1] * 1000000 + time[2]
  end
  return began
end

-- awaits(also, waiters) returns whether a set of waiters is that of one of the further keys that a task waits for: the release of
-- any of its keys wakes it. They are encoded, each with a blank before it.
local function awaits(also, waiters)
  return string.find(also .. ' ', ' ' .. string.sub(waiters, 20, -2) .. ' ', 1, true) ~= nil
end
