-- Notes that a run begins with a payload of which only the latest is to run, or tells that one has begun with a later payload. It
-- must be atomic: otherwise an older run could begin after a newer one. The caller has the task's keys. It may be called twice.
--
-- KEYS  1 the record (latest.lua)
-- ARGV  1 entry of the task   2 number of the payload   3 how long a record is kept (ms) that was lost
--
-- Returns '' if it begins, else the entry of the task that has begun to run with a later payload.
local ran, by = unpack(redis.call('HMGET', KEYS[1], 'ran', 'by'))
if tonumber(ARGV[2]) < tonumber(ran or 0) then
  return by
end
redis.call('HSET', KEYS[1], 'ran', ARGV[2], 'by', ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return ''
