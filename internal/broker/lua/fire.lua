-- Enqueues a task for a scheduler by asynq's own script, the function enqueue before it, unless that was done already.
-- It must be atomic: a task that has run leaves no trace by which a second firing could be refused.
--
-- KEYS  those of asynq's script, then the last firing in this queue, and this call
--       ARGV  those of asynq's script, then  1 token of the leader   2 now (s)   3 1 while the leader trusts its lease
--
-- Returns what asynq's script does, and 1 when nothing was left to do: Redis was sent the call twice, a later leader
-- has fired, or the one before has in the same second, because its clock is ahead. A clock that is ahead by a minute or
-- more is wrong, and counts for nothing.
local last, n = KEYS[#KEYS - 1], #ARGV - 3
local token, now = tonumber(ARGV[n + 1]), tonumber(ARGV[n + 2])
local fired = redis.call('HMGET', last, 'token', 'second')
local by, at = tonumber(fired[1] or 0), tonumber(fired[2] or 0)
if by > token or by < token and at >= now and at < now + 60 then
  return 1
elseif ARGV[n + 3] ~= '1' then
  return redis.error_reply('ERR railtoken: the lease of this scheduler is lost: another process fires')
elseif not redis.call('SET', KEYS[#KEYS], '1', 'NX', 'EX', 60) then
  return 1
end
local reply = enqueue()
redis.call('HSET', last, 'token', ARGV[n + 1], 'second', ARGV[n + 2])
redis.call('EXPIRE', last, 86400)
return reply
