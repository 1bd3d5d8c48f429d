-- Moves a waiter to an end of the waiters of a key. It must be atomic: the end must be the end at the moment at which
-- the waiter gets there, and one that was woken must not come back.
--
-- KEYS  1 waiters of the key   ARGV  1 member   2 'first' or 'last'
--
-- Returns the waiter's place (its score), or nil when it does not wait for the key.
local waiters, member = KEYS[1], ARGV[1]
local place = redis.call('ZSCORE', waiters, member)
if not place then
  return false
end
local first = ARGV[2] == 'first'
local rank = first and 0 or -1
local outermost = redis.call('ZRANGE', waiters, rank, rank, 'WITHSCORES')
place = tonumber(place)
if outermost[1] ~= member then
  place = tonumber(outermost[2]) + (first and -1 or 1)
  redis.call('ZADD', waiters, 'XX', string.format('%.0f', place), member)
end
return string.format('%.0f', place)
