-- Ends a run by asynq's own script, which stands in the place below, where it is sent alone: while the slot of its queue
-- moves, during a shutdown, by asynq's recoverer, or once more. It notes the end for those who hear of it, and sends a
-- notice to those who wait for it. It must be atomic: no crash may come between an end and its mark.
--
-- KEYS  those of asynq's script, then the marks of the queue, if there is a mark
-- ARGV  those of asynq's script, then: 1 position of the task's hash in its keys   2 its mark, or ''   3 when others may tell
--       it (ms from now)   4 archived: see mark   5 1 when the mark ends with the task's message, which the hash has
--       6 the run that is to end, or '' when it is not known
--
-- Returns what asynq's script does, and the same error as that if the task is in another run.
local function acknowledge(KEYS, ARGV)
--SCRIPT--
end
local n, keys = #ARGV - 6, #KEYS
local task, member = KEYS[tonumber(ARGV[n + 1])], ARGV[n + 2]
if member ~= '' then
  keys = keys - 1
end
local awaited, run = unpack(redis.call('HMGET', task, 'railtoken:awaited', 'pending_since'))
if ARGV[n + 6] ~= '' and run ~= ARGV[n + 6] then
  return redis.error_reply('NOT FOUND')
end
if member ~= '' and ARGV[n + 5] == '1' then
  member = member .. (redis.call('HGET', task, 'msg') or '')
end
local done = acknowledge({unpack(KEYS, 1, keys)}, {unpack(ARGV, 1, n)})
if done.err then
  return done
end
if member ~= '' then
  mark(KEYS[#KEYS], member, ARGV[n + 3], task, ARGV[n + 4])
end
notice(awaited, task)
return done
