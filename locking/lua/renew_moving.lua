-- Extends the lock of one key if it still belongs to one owner: renew.lua for a key whose slot moves to another server
-- of a Redis Cluster. Meanwhile both servers refuse a script of several keys, unless all of its keys exist on one of
-- them. It must be atomic: compare and extend.
--
-- KEYS  lock   ARGV  1 owner value   2 TTL (ms)
--
-- Returns 0, or 1 when the key is lost. The fence counter needs no look, because it does not rise while the lock is
-- this owner's, and no extension, because its TTL is longer than MaxHold.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 0
