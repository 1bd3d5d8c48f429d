-- Has a move begin beside a queue. It must be atomic: of two moves, one is the later one.
--
-- KEYS  1 record of the queue
-- ARGV  1 number of the move, '' for a new one   2 '1' when the notes of earlier moves are over
--
-- Returns the number of the move, '' when a later one has begun.
local now = redis.call('TIME')
local last = tonumber(redis.call('HGET', KEYS[1], 'move') or '0')
local number = tonumber(ARGV[1]) or math.max(now[1] * 1000000 + now[2], last + 1)
if last > number then
  return ''
end
if ARGV[2] == '1' then
  redis.call('DEL', KEYS[1])
end
redis.call('HSET', KEYS[1], 'move', string.format('%.0f', number))
redis.call('PERSIST', KEYS[1])
return string.format('%.0f', number)
