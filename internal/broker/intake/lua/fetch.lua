-- Takes the next tasks of some queues and begins their runs, as asynq's own dequeueCmd (v0.26) does with one. It must be
-- atomic: a task that is in no list would be lost, and one that is active without a lease would never be recovered.
--
-- KEYS  pending, paused, active and lease of each queue, and the mark of a fetch that was recalled
-- ARGV  for the fetch: see grant.lua
--
-- Returns a list with seven values of each task, one more if tasks were parked or others are left, and one more with what became of
-- those that waited for their locks: see tell, settle and take in grant.lua.
local reply = {}
if call('EXISTS', KEYS[#KEYS]) == 0 then
  local ok, err = take(reply, 1, tonumber(ARGV[2]), 1)
  if not ok and #reply == 0 then
    return type(err) == 'table' and err or redis.error_reply(err)
  end
end
return reply
