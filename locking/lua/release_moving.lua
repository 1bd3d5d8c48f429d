-- Deletes the lock of one key that still belongs to one owner: release.lua for a key whose slot moves to another node of a Redis Cluster (see
-- renew_moving.lua). It must be atomic: compare and delete.
--
-- KEYS  lock   ARGV  owner value
--
-- Returns 0, or 1 when another has the key. Whether somebody is interested is not known here, so it is announced in any case.
local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', KEYS[1], '1')
  return 0
end
return value and 1 or 0
