-- Has the uniqueness lock of a waiting task last for as long as the task waits. KEYS  1 the lock   ARGV  1 ID of the task   2 how long (ms)
if redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
