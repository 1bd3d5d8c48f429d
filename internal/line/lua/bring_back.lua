-- Has a task run again whose worker has died, or archives it, as asynq's recoverer would do a minute later
-- (docs/design.md, 5.3 and 6.7). It must be atomic: asynq's recoverer may do it at the same moment, the task may be in
-- another run by now, or the worker may prove to be alive.
--
-- KEYS  1 the task's hash   2 active   3 lease   4 pending   5 archived   6 processed and 7 failed today
--       8 processed and 9 failed in all   10 retry
-- ARGV  1 ID of the task   2 its message, as it was   3 as it becomes   4 how long ago (s) the lease must have ended
--       5 and how long ago at most   6 now (ns)
--       7 '' when the task had not begun to work; 'pending' or 'archived' when it had, and so has failed
--       8 when the counts of today end (s)
--       9 '' when asynq's lease tells that the worker has died; 'silent' when its worker does not report any more, and
--       'unleased' when no server runs the task and it has no lease. For the last two:  10 the field pending_since of the
--       task: the name of its run, if it has one   11 how many runs in a row may end so
--
-- Returns 1; or 2 when so many runs have ended so that asynq's recoverer is to count this end as a failure; or 3 when the run
-- was cancelled, so the task waits for a minute, in which the caller ends it; or 0 when the task is not active any more, is in another run, or its lease ended too recently, or so long ago that the recoverer may
-- be at it. The recoverer never finds a task without a lease, so one that is left to it gets a lease that has ended.
--
-- The field railtoken:deaths of the hash has how many runs in a row have ended so, and what the task was like then: it is
-- different once a run has ended by itself, with a failure or a park. Function Deaths reads it, too.
--
-- The names and fields are asynq's own (v0.26), as in its requeueCmd, retryCmd and archiveCmd.
local id, judge = ARGV[1], ARGV[9]
local found = redis.call('HMGET', KEYS[1], 'state', 'msg', 'pending_since', 'railtoken:woken', 'railtoken:nonce', 'railtoken:deaths',
  'railtoken:cancel')
local ends = tonumber(redis.call('ZSCORE', KEYS[3], id) or nil)
if found[1] ~= 'active' or found[2] ~= ARGV[2] then
  return 0
end
local ago = ends and redis.call('TIME')[1] - ends
if ago and (judge == '' and ago < tonumber(ARGV[4]) or ago >= tonumber(ARGV[5])) then
  return 0
end
local deaths = nil
local cancelled = judge ~= '' and found[7]
if judge ~= '' then
  if (found[3] or '') ~= ARGV[10] or judge == 'unleased' and ends then
    return 0
  end
  local like = string.sub(redis.sha1hex(found[2] .. '|' .. (found[5] or '')), 1, 16)
  local n, before = string.match(found[6] or '', '^(%d+) (%x+)$')
  n = (before == like and tonumber(n) or 0) + 1
  if n >= tonumber(ARGV[11]) and not cancelled then
    if not ends then
      redis.call('ZADD', KEYS[3], 0, id)
    end
    redis.call('HSET', KEYS[1], 'pending_since', ARGV[6]) -- in no run any more that others know
    return 2
  end
  deaths = n .. ' ' .. like
end
if redis.call('LREM', KEYS[2], 0, id) == 0 and judge ~= '' then
  return 0
end
redis.call('ZREM', KEYS[3], id)
if ARGV[7] == 'archived' then
  redis.call('ZADD', KEYS[5], string.format('%.0f', math.floor(ARGV[6] / 1e9)), id)
  redis.call('HSET', KEYS[1], 'msg', ARGV[3], 'state', 'archived')
elseif cancelled then
  redis.call('ZADD', KEYS[10], string.format('%.0f', math.floor(ARGV[6] / 1e9) + 60), id)
  redis.call('HSET', KEYS[1], 'state', 'retry')
  return 3
else
  redis.call('RPUSH', KEYS[4], id)
  redis.call('HSET', KEYS[1], 'msg', ARGV[3], 'state', 'pending', 'pending_since', ARGV[6])
  if deaths then
    redis.call('HSET', KEYS[1], 'railtoken:deaths', deaths)
    if found[4] then
      redis.call('HSET', KEYS[1], 'railtoken:woken', '1') -- when is not known any more
    end
  end
end
if ARGV[7] ~= '' then
  for i = 6, 7 do
    if redis.call('INCR', KEYS[i]) == 1 then
      redis.call('EXPIREAT', KEYS[i], ARGV[8])
    end
    redis.call('INCR', KEYS[i + 2])
  end
end
if ARGV[7] ~= 'archived' then
  ready(KEYS[4], 1)
end
return 1
