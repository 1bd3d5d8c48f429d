-- Notes a task's new place in the waiters of a key, so that it comes back there after another conflict. It must be
-- atomic: the record may have been cleared, or be about another key by now, and a hash must not be made of nothing.
--
-- KEYS  1 the task's hash   ARGV  1 waiters of the key   2 place
--
-- Returns 1, or 0 when the task does not wait for that key any more.
local r = recordOf(KEYS[1])
if not r or r.waiters ~= ARGV[1] and not awaits(r.also, ARGV[1]) then
  return 0
end
r.place = tonumber(ARGV[2])
write(KEYS[1], r)
return 1
