-- Stands for asynq's own doneCmd (v0.26) in ack.lua, with the same KEYS and ARGV: it ends the runs of several
-- acknowledgements with fewer calls. What follows the check below is done for all of them at once.
--
-- KEYS  1 active   2 lease   3 the task's hash   4 asynq's count of the day   5 asynq's count of all days
-- ARGV  1 ID   2 when the count of the day expires (s)   3 the largest number
if call('LREM', KEYS[1], 0, ARGV[1]) == 0 then
  return redis.error_reply('NOT FOUND')
end
local day = days[KEYS[4]]
if not day then
  day = {lease = KEYS[2], total = KEYS[5], expiry = ARGV[2], ids = {}, tasks = {}}
  days[KEYS[4]] = day
end
day.ids[#day.ids + 1], day.tasks[#day.tasks + 1] = ARGV[1], KEYS[3]
return redis.status_reply('OK')
