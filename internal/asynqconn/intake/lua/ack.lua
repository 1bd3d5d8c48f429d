-- Ends a run by asynq's own script, which stands in the place below, releases the locks of the task, and takes the next
-- tasks for the slot that is free then. It must be atomic, so that a reply which is lost is lost for all: the run has
-- ended, or it has not.
--
-- KEYS  those of asynq's script, then of each lock its name, fence counter and subscription, then pending, paused, active
--       and lease of each queue
-- ARGV  those of asynq's script, then  1 position of the task's hash in KEYS   2 its run   3 name of this call
--       4 most tasks   5 when their lease ends (s)   6 1 when the call was sent before   7 to 12 for locks: see grant.lua
--       13 owner of the locks   14 1 when the run has not succeeded if one of them was lost   15 how many locks
--       16... the token of each   then... orders in which to look at the queues
--       last: how many keys and   how many arguments asynq's script has
--
-- Returns 1, or 0 when the run is over, or 2 when a lock was lost and the run goes on; the position of the first lock
-- that another owner has had since, or 0; how many have a subscription; for how many of them tasks are parked; and then a list of tasks as fetch.lua does. When
-- the run was over, nothing was done but the release, unless by an earlier copy of the call, whose tasks are returned
-- again. An error is that of asynq's script.
local keys, args = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
local call, locks = ARGV[args + 3], args + 7
local repeated = ARGV[args + 6] == '1'
local held = tonumber(ARGV[args + 15])
local queues = keys + 3 * held + 1
local lost, subscribed, parked = 0, 0, 0
for i = 1, held do
  local k = keys + 3 * i - 2
  local answer = release(KEYS[k], KEYS[k + 1], KEYS[k + 2], ARGV[args + 13], ARGV[args + 15 + i])
  if answer ~= 0 then
    lost = lost == 0 and answer[1] * i or lost
    if answer[2] == 1 then
      subscribed = subscribed + 1
      parked = parked + waiting(KEYS[k])
      spared[KEYS[k]] = true
    end
  end
end
local function over()
  local reply = {0, 0, subscribed, parked}
  if repeated then
    granted(reply, queues, (#KEYS - queues + 1) / 4, call, ARGV[args + 5], locks)
  end
  return reply
end
if redis.call('HGET', KEYS[tonumber(ARGV[args + 1])], 'railtoken:run') ~= ARGV[args + 2] then
  return over()
end
if lost > 0 and ARGV[args + 14] == '1' then
  return {2, lost, subscribed, parked}
end
local function acknowledge()
--SCRIPT--
end
local done = acknowledge()
if done.err then -- the task is not active any more; its hash may still have the run
  return (repeated or held > 0 and string.find(done.err, 'NOT FOUND', 1, true)) and over() or done
end
ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil
local reply = {1, lost, subscribed, parked}
-- A parked task is woken first: one that came later would have the key before it.
if parked > 0 then
  return reply
end
-- An error of the next fetch must not look like one of this acknowledgement.
pcall(grant, reply, queues, tonumber(ARGV[args + 4]), call, ARGV[args + 5], locks, args + 16 + held)
return reply
