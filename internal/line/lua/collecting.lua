-- Removes the mark of a task that has collected a key. It must be atomic: the mark may have ended, and be another task's.
--
-- KEYS  1 the mark   ARGV  1 the name of the task's attempt
--
-- Returns 1, or 0 when the mark is not the attempt's.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
