-- Deletes what is left of a task that is in its lane. It must be atomic: the note is what says that it is there.
--
-- KEYS  1 the task's hash   2 record of the queue   3 its uniqueness lock, if it has one
-- ARGV  1 number of the move   2 ID
--
-- Returns 'finished'; 'superseded' when a later move has begun.
if tonumber(redis.call('HGET', KEYS[2], 'move') or '0') > tonumber(ARGV[1]) then
  return 'superseded'
end
if redis.call('HDEL', KEYS[2], 't:' .. ARGV[2]) == 1 then
  redis.call('DEL', KEYS[1])
  if KEYS[3] and redis.call('GET', KEYS[3]) == ARGV[2] then
    redis.call('DEL', KEYS[3])
  end
end
return 'finished'
