-- Notes with a moved task that it is about to run (DESIGN 5.3). It must be atomic: a note on a task that is gone would put its hash back.
--
-- KEYS  1 the task's hash   ARGV  1 the name of the move
--
-- Returns 1, or 0 when there is no such task.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'railtoken:ran', ARGV[1])
return 1
