-- Takes the next tasks of some queues and begins their runs, as asynq's own dequeueCmd (v0.26) does with one. It must be
-- atomic: a task that is in no list would be lost, and one that is active without a lease would never be recovered.
--
-- KEYS  pending, paused, active and lease of each queue, and the mark of a call that was recalled
-- ARGV  1 name of this call   2 most tasks   3 when the lease ends (s)   4 to 9 for locks: see grant.lua
--       10... orders in which to look at the queues
--
-- Returns a list with ten values of each task: see tell in grant.lua.
local reply = {}
if redis.call('EXISTS', KEYS[#KEYS]) == 0 then
  local ok, err = pcall(grant, reply, 1, tonumber(ARGV[2]), ARGV[1], ARGV[3], 4, 10, #ARGV - 9)
  pcall(lease)
  if not ok and #reply == 0 then
    return type(err) == 'table' and err or redis.error_reply(err)
  end
end
return reply
