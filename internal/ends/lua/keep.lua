-- Keeps a mark that a process tells, or replaces it by one that is to be told again. It must be atomic: a mark that was removed
-- must not come back, and one that is replaced must not be lost.
--
-- KEYS  1 marks   ARGV  1 the mark   2 until when (ms from now)   3 the mark in its place, or ''
--
-- Does nothing when the mark is gone.
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return
end
local time = redis.call('TIME')
local due = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
if ARGV[3] ~= '' and ARGV[3] ~= ARGV[1] then
  redis.call('ZADD', KEYS[1], due, ARGV[3])
  redis.call('ZREM', KEYS[1], ARGV[1])
else
  redis.call('ZADD', KEYS[1], due, ARGV[1])
end
