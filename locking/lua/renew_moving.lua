-- Extends the lock of one key that still belongs to one owner: renew.lua for a key whose slot moves to another node of a Redis Cluster. As
-- long as it moves, a script of several keys is refused on both nodes, unless all of its keys exist and lie on the same one. It must be
-- atomic: compare and extend.
--
-- KEYS  lock   ARGV  1 owner value   2 TTL (ms)
--
-- Returns 0, or 1 when the key is lost. The fence counter needs no look, since it does not rise as long as the lock is this owner's, and no
-- extension, since its TTL is longer than MaxHold.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 0
