-- Notes a task's new place in the waiters of a key, so that it comes back there after another conflict. It must be
-- atomic: the record may have been cleared, or be about another key by now, and a hash must not be made of nothing.
--
-- KEYS  1 the task's hash   ARGV  1 waiters of the key   2 place
--
-- Returns 1, or 0 when the task does not wait for that key any more.
local found = redis.call('HMGET', KEYS[1], 'railtoken:waiters', 'railtoken:also')
if found[1] ~= ARGV[1] and not awaits(found[2], ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'railtoken:place', ARGV[2])
return 1
