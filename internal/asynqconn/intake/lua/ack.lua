-- Ends a run by asynq's own script, which stands in the place below, and takes the next tasks for the slot that is free
-- then. It must be atomic, so that a reply which is lost is lost for both: the run has ended, or it has not.
--
-- KEYS  those of asynq's script, then pending, paused, active and lease of each queue
-- ARGV  those of asynq's script, then  1 position of the task's hash in KEYS   2 its run   3 name of this call
--       4 most tasks   5 when their lease ends (s)   6 1 when the call was sent before
--       7... orders in which to look at the queues   last: how many keys and   how many arguments asynq's script has
--
-- Returns a list as fetch.lua does, with 1 before it, or 0 when the run is over: then nothing was done, unless by an
-- earlier copy of the call, whose tasks are returned again. An error is that of asynq's script.
local keys, args = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])
local call = ARGV[args + 3]
local repeated = ARGV[args + 6] == '1'
local function over()
  local reply = {0}
  if repeated then
    granted(reply, keys + 1, (#KEYS - keys) / 4, call, ARGV[args + 5])
  end
  return reply
end
if redis.call('HGET', KEYS[tonumber(ARGV[args + 1])], 'railtoken:run') ~= ARGV[args + 2] then
  return over()
end
local function acknowledge()
--SCRIPT--
end
local done = acknowledge()
if done.err then -- the task is not active any more; its hash may still have the run
  return repeated and over() or done
end
ARGV[#ARGV], ARGV[#ARGV - 1] = nil, nil
local reply = {1}
-- An error of the next fetch must not look like one of this acknowledgement.
pcall(grant, reply, keys + 1, tonumber(ARGV[args + 4]), call, ARGV[args + 5], args + 7)
return reply
