-- Releases a lock that was taken by SET NX PX.
-- KEYS[1]  the lock
-- ARGV[1]  the owner's value
-- Returns  1 when the lock was deleted, 0 when it was not the owner's any more
-- Atomic, because the lock may expire and be taken by another owner between a GET and a DEL.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
