-- Lets one copy of a moved task run (DESIGN 5.3, tombstone). It must be atomic: two copies must not both find no tombstone.
--
-- KEYS  1 tombstone of the task   ARGV  1 name of the move   2 how long the tombstone is kept (ms)
--
-- Returns 1 when this move is the one that runs, 0 when another is or was.
local first = redis.call('GET', KEYS[1])
if not first then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
if first == ARGV[1] then
  return 1
end
return 0
