-- Notes that a task which supersedes others has begun to run, unless it was refused or has begun before. It must be atomic: otherwise a
-- task that is deleted meanwhile would leave a hash behind. It may be called repeatedly.
--
-- KEYS  1 hash of the task
-- ARGV  1 how long ago it was fetched for this run (us): whom its locks have refused meanwhile is newer
--
-- Returns when it was first refused or began (us), or '' if it is gone.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return ''
end
local since = redis.call('HGET', KEYS[1], 'railtoken:since')
if not since then
  local time = redis.call('TIME')
  since = string.format('%.0f', time[1] * 1e6 + time[2] - ARGV[1])
  redis.call('HSET', KEYS[1], 'railtoken:since', since)
end
return since
