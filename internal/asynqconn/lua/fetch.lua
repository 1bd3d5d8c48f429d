-- Takes the next task of a queue and begins its run, as asynq's own dequeueCmd (v0.26) does, and reads what its hash
-- has noted of its waiting in the same step. Before that, tasks that were fetched by a call whose reply was lost go
-- back to the head of the queue: no worker has them.
--
-- KEYS  1 pending   2 paused   3 active   4 lease of the queue
-- ARGV  1 when the lease ends (s)   2 how the names of the queue's tasks begin   3 a name for the run, that no other has
--       4... the name of the run, and the end of the lease (s), of each call whose reply was lost
--
-- Returns {ID, message, retry count of the record, conflicts, first conflict (us), '1' when it was woken}, or nil when
-- the queue is empty or paused.
for i = 4, #ARGV, 2 do
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], ARGV[i + 1], ARGV[i + 1])) do
    local task = ARGV[2] .. id
    local found = redis.call('HMGET', task, 'railtoken:run', 'state')
    if found[1] == ARGV[i] and found[2] == 'active' then
      local now = redis.call('TIME')
      redis.call('HSET', task, 'state', 'pending', 'pending_since', now[1] .. string.format('%06d000', now[2]))
      redis.call('RPUSH', KEYS[1], id)
      redis.call('LREM', KEYS[3], 1, id)
      redis.call('ZREM', KEYS[4], id)
    end
  end
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  return nil
end
local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[3])
if not id then
  return nil
end
local task = ARGV[2] .. id
redis.call('ZADD', KEYS[4], ARGV[1], id) -- whatever fails from here on, asynq recovers the task
redis.call('HSET', task, 'state', 'active', 'railtoken:run', ARGV[3])
local found = redis.call('HMGET', task, 'msg', 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:woken')
redis.call('HDEL', task, 'pending_since', 'railtoken:woken')
return {id, unpack(found)}
