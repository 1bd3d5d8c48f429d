-- Takes marks that nobody tells. It must be atomic: of several servers, one takes a mark.
--
-- KEYS  1 marks   ARGV  1 most   2 how long they are kept (ms)
--
-- Returns the marks.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, member in ipairs(due) do
  redis.call('ZADD', KEYS[1], now + ARGV[2], member)
end
return due
