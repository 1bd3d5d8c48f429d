-- Enqueues a task as asynq does, and with it what a server may read before it fetches the task: its business keys. Its
-- text is that of asynq's own script (v0.26) as the function enqueue, with the numbers of that script's KEYS and ARGV
-- as K and A, and the task's uniqueness lock as unique, nil for none. It must be atomic: a key may be taken or given
-- back at any moment, and a task that is to wait must not be fetched before it does.
--
-- KEYS  asynq's, then  1 the task's hash   2 pending   3 retry of its queue   4... locks none of which may be there
-- ARGV  asynq's, then  1 a name for this call, that no other has   2 the task's keys, encoded, with blanks between
--       3 the sequence that it is to join, with how (head.lua), or ''
--       and for a task that is to wait for a key   4 waiters of the key   5 ID of the task   6 now (ns)
--       7 its timer (ms)   8 the longest timer (ms), 0 for no limit
--       9 its deadline (s), 0 for none   10 what says why it stands before others, or ''
--
-- Returns what asynq's script does: 1 when the task is enqueued, also by this call when it was sent before and the
-- answer was lost; else 0 or -1. When the n-th lock is there, -1 - n, and nothing is enqueued.
local task, call = KEYS[K + 1], ARGV[A + 1]
if redis.call('HGET', task, 'railtoken:enqueued') == call then
  return 1
end
for i = K + 4, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    return K + 2 - i
  end
end
local outcome = enqueue()
if outcome ~= 1 then
  return outcome
end
redis.call('HSET', task, 'railtoken:enqueued', call)
if ARGV[A + 2] ~= '' then
  redis.call('HSET', task, 'railtoken:keys', ARGV[A + 2])
end
if ARGV[A + 3] ~= '' then
  redis.call('HSET', task, 'railtoken:sequence', ARGV[A + 3])
end
if #ARGV > A + 3 then
  local id, look = ARGV[A + 5], ARGV[A + 7]
  redis.call('LREM', KEYS[K + 2], 1, id)
  shelve(task, KEYS[K + 3], id, ARGV[A + 6], timer(tonumber(look), 0, tonumber(ARGV[A + 8])), redis.call('HGET', task, 'msg'),
    tonumber(ARGV[A + 9]), unique)
  note(task, ARGV[A + 4], '0', look, 0, ARGV[A + 9], '', '', ARGV[A + 10])
  redis.call('HSET', task, 'railtoken:nonce', call)
else
  ready(KEYS[K + 2], 1)
end
return 1
