-- Has a task run again whose worker has died, or archives it, as asynq's recoverer would do a minute later
-- (docs/design.md, 5.3). It must be atomic: asynq's recoverer may do it at the same moment, or the worker may prove to
-- be alive.
--
-- KEYS  1 the task's hash   2 active   3 lease   4 pending   5 archived   6 processed and 7 failed today
--       8 processed and 9 failed in all
-- ARGV  1 ID of the task   2 its message, as it was   3 as it becomes   4 how long ago (s) the lease must have ended
--       5 and how long ago at most   6 now (ns)
--       7 '' when the task had not begun to work; 'pending' or 'archived' when it had, and so has failed
--       8 when the counts of today end (s)
--
-- Returns 1, or 0 when the task is not active any more, or its lease ended too recently, or so long ago that the
-- recoverer may be at it. The recoverer never finds a task without a lease.
--
-- The names and fields are asynq's own (v0.26), as in its requeueCmd, retryCmd and archiveCmd.
local id = ARGV[1]
local found = redis.call('HMGET', KEYS[1], 'state', 'msg')
local ends = tonumber(redis.call('ZSCORE', KEYS[3], id) or nil)
if found[1] ~= 'active' or found[2] ~= ARGV[2] then
  return 0
end
local ago = ends and redis.call('TIME')[1] - ends
if ago and (ago < tonumber(ARGV[4]) or ago >= tonumber(ARGV[5])) then
  return 0
end
redis.call('LREM', KEYS[2], 0, id)
redis.call('ZREM', KEYS[3], id)
if ARGV[7] == 'archived' then
  redis.call('ZADD', KEYS[5], string.format('%.0f', math.floor(ARGV[6] / 1e9)), id)
  redis.call('HSET', KEYS[1], 'msg', ARGV[3], 'state', 'archived')
else
  redis.call('HSET', KEYS[1], 'msg', ARGV[3], 'state', 'pending', 'pending_since', ARGV[6])
  redis.call('RPUSH', KEYS[4], id)
end
if ARGV[7] ~= '' then
  for i = 6, 7 do
    if redis.call('INCR', KEYS[i]) == 1 then
      redis.call('EXPIREAT', KEYS[i], ARGV[8])
    end
    redis.call('INCR', KEYS[i + 2])
  end
end
return 1
