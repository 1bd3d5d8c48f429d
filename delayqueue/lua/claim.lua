-- Decides which run of a task that was moved goes on (DESIGN 5.3, tombstone): the first one to ask. It must be atomic: two
-- runs must not both find no tombstone.
--
-- KEYS  1 tombstone of the move   2 the note beside it
-- ARGV  1 who asks: the name of a copy, or 'original'   2 how long it is kept (ms)
--
-- Returns 1 when the one that asks may run, also again, and 0 when another one has, is or will. A note beside the tombstone says that
-- who runs has its name on its task as well: see whose in moved.lua.
local first = redis.call('GET', KEYS[1])
if first and first ~= ARGV[1] then
  return 0
end
if not first then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1
