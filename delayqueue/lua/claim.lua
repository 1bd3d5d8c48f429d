-- Decides which run of a task that was moved goes on (DESIGN 5.3, tombstone): the first one to ask. It must be atomic: two
-- runs must not both find no tombstone.
--
-- KEYS  1 tombstone of the move   ARGV  1 who asks: the name of a copy, or 'original'   2 how long it is kept (ms)
--
-- Returns 1 when the one that asks may run, also again, and 0 when another one has, is or will.
local first = redis.call('GET', KEYS[1])
if not first then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
if first == ARGV[1] then
  return 1
end
return 0
