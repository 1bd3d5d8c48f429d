-- Adds a task to the sequence of a key and returns the tasks before it. It must be atomic: two tasks must not get the
-- same position, and no task may pass another between its arrival and the answer. It begins with sequence.lua, and on one node
-- with head.lua.
--
-- KEYS  1 sequence of the key   2 waiters of the key   3 on one node, hash of the member's task, and 4 the index of all
--       parked tasks
-- ARGV  1 member   2 position that the member had before (us), or ''   3 how many of those in front to name
--       4 1 when the member's run has just begun: it is not parked any more   5 1 when it works as soon as it is first
--       6 on one node, how the task joins (enlist); on a Cluster, what enlist has returned
--       7... members that are gone and the scores that they had: they are removed first
--
-- Returns {how many stand before it, -1 when it has not joined; position (us), 1 when it was still parked or else 0, position of
-- the first (us), 1 when the first is parked or else 0, 1 when the first has begun to work or else 0, then the first of those
-- before it and their scores...}.
local sequence, member, most = KEYS[1], ARGV[1], tonumber(ARGV[3])
local fresh = tonumber(ARGV[6])
if KEYS[3] then
  fresh = enlist(KEYS[3], sequence, ARGV[6])[2]
  if ARGV[6] == 'joined' and fresh ~= 1 then
    return {-1, '0', 0, '0', 0, 0}
  end
end
local parked = 0
if ARGV[4] == '1' then
  parked = redis.call('ZREM', KEYS[2], member)
  if parked == 1 and KEYS[4] then
    redis.call('ZREM', KEYS[4], member)
  end
end
for i = 7, #ARGV, 2 do
  if redis.call('ZSCORE', sequence, ARGV[i]) == ARGV[i + 1] then
    redis.call('ZREM', sequence, ARGV[i])
  end
end
local score = arrive(sequence, member, tonumber(ARGV[2]), fresh == 1)
local place = math.floor(score)
local ahead, front = redis.call('ZRANK', sequence, member), {}
local first, waits, begun = place, 0, 0
if ahead > 0 and most > 0 then
  front = redis.call('ZRANGE', sequence, 0, math.min(ahead, most) - 1, 'WITHSCORES')
  local before = tonumber(front[2])
  first = math.floor(before)
  begun = before > first and 1 or 0
  waits = redis.call('ZSCORE', KEYS[2], front[1]) and 1 or 0
elseif ahead == 0 and ARGV[5] == '1' then
  begin(sequence, member, score)
end
return {ahead, string.format('%.0f', place), parked, string.format('%.0f', first), waits, begun, unpack(front)}
