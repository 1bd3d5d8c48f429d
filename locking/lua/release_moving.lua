-- Deletes the lock of one key if it still belongs to one owner: release.lua for a key whose slot moves to another
-- server of a Redis Cluster (see renew_moving.lua). It must be atomic: compare and delete.
--
-- KEYS  lock   ARGV  owner value
--
-- Returns 0, or 1 when another owner has the key. Subscriptions are unknown here, so it always notifies.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', KEYS[1], '1')
  return 0
end
return value and 1 or 0
