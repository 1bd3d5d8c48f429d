-- Takes a token of a semaphore.
-- KEYS[1]  the sorted set of the tokens that are taken, with their ends in seconds as scores
-- ARGV[1]  how many tokens there are
-- ARGV[2]  the time now in seconds
-- ARGV[3]  when the token ends by itself
-- ARGV[4]  the task that takes it
-- Returns  1 when it was taken, 0 when there is none left
-- Atomic, because two tasks may count the same tokens and both take the last one otherwise.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
return 1
