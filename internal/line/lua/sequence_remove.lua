-- Removes tasks from the sequence of a key and returns its new front. It must be atomic: if two tasks that leave at the
-- same time each found the other one first, the next task would not be woken.
--
-- KEYS  1 sequence of the key   2 waiters of the key   3 on one node, the index of all parked tasks
-- ARGV  1 how many of the first to name   2 member that leaves, or ''
--       3... members that are gone and the scores that they had: one that has joined again since stays
--
-- A member that leaves stays when it is parked: asynq has given up the run that leaves, and the task has come back
-- meanwhile. Those that are gone are parked no more either.
--
-- Returns {how many tasks are parked on the key, how many of those that are gone were parked, 1 when the first in the
-- sequence has begun to work or else 0 (sequence_join.lua), how many of the first three of the sequence are parked,
-- those, then the first in the sequence and their scores...}.
local parked = 0
if not redis.call('ZSCORE', KEYS[2], ARGV[2]) then
  redis.call('ZREM', KEYS[1], ARGV[2])
end
for i = 3, #ARGV, 2 do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    redis.call('ZREM', KEYS[1], ARGV[i])
    local waited = redis.call('ZREM', KEYS[2], ARGV[i])
    if waited == 1 and KEYS[3] then
      redis.call('ZREM', KEYS[3], ARGV[i])
    end
    parked = parked + waited
  end
end
local front, waits, begun = redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[1]) - 1, 'WITHSCORES'), {}, 0
if front[1] then
  local score = tonumber(front[2])
  begun = score > math.floor(score) and 1 or 0
end
for i = 1, math.min(#front, 6), 2 do
  if redis.call('ZSCORE', KEYS[2], front[i]) then
    waits[#waits + 1] = front[i]
  end
end
local reply = {redis.call('ZCARD', KEYS[2]), parked, begun, #waits, unpack(waits)}
for _, value in ipairs(front) do
  reply[#reply + 1] = value
end
return reply
