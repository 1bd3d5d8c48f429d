-- Finds the active tasks of a queue whose runs may be over, for the one worker that looks after the queue at a time. It
-- changes none of them, so whatever is wrong in what it returns is found out by bring_back.lua.
--
-- KEYS  1 the worker that looks after the queue   2 active   3 lease   4 the prefix of the hashes of its tasks
-- ARGV  1 this worker   2 how long (ms) it looks after the queue without a further call
--       3 the names of the workers that are dead, each with a blank behind it
--       4 how long (s) a task must have been without a lease since another call has noted that in its hash
--
-- Returns {0} when another worker looks after the queue, else {1} and, for each task whose run is one of a dead worker, or that
-- has had no lease for so long: its ID, its field pending_since or '', and 1 for the former, else 0.
local found, dead, now = {1}, ARGV[3], nil
if redis.call('EXISTS', KEYS[2]) == 0 then -- nearly always, if the servers are idle
  return found
end
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then
  return {0}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])

-- lost(task, run) returns whether a task has been without a lease in this run for so long, and notes it otherwise.
local function lost(task, run)
  now = now or tonumber(redis.call('TIME')[1])
  local since, before = string.match(redis.call('HGET', task, 'railtoken:unleased') or '', '^(%d+) (.*)$')
  if before == run then
    return now - since >= tonumber(ARGV[4])
  elseif redis.call('EXISTS', task) == 1 then
    redis.call('HSET', task, 'railtoken:unleased', now .. ' ' .. run)
  end
  return false
end

for _, id in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  local task = KEYS[4] .. id
  local run = redis.call('HGET', task, 'pending_since') or ''
  -- the name of a run of a worker that may be taken back from it: 16 characters, the name of the worker, a point, and a number
  local silent = string.byte(run, 25) == 46 and string.find(dead, string.sub(run, 17, 24) .. ' ', 1, true)
  if silent or not redis.call('ZSCORE', KEYS[3], id) and lost(task, run) then
    local n = #found
    found[n + 1], found[n + 2], found[n + 3] = id, run, silent and 1 or 0
  end
end
return found
