-- Part of the scripts: what parking does in the slot of the task's queue, as a step of its own on a Cluster.

-- suspend(task, nonce, ID, now (ns), 1 when asynq's lease must have ended, waiters, retry count, its timer
-- if it is next (ms), longest or 0, how long ago it was first refused in this run (us),
-- deadline, own, further sets: see note) counts a conflict and shelves the task.
-- KEYS  1 the task's hash   2 active   3 lease   4 retry of its queue   5 its uniqueness lock, if it has one.
--       Returns {what resign does, conflicts, first conflict (us), place, waiters before or '', now (us)}. After
--       'again' they are as they were left, without now.
local function suspend(task, nonce, id, now, late, waiters, retried, look, longest, ago, deadline, own, also)
  local left, message = resign(task, nonce, id, now, late)
  if left ~= 'ok' then
    local met = left == 'again' and redis.call('HMGET', task, 'railtoken:conflicts', 'railtoken:first', 'railtoken:place', 'railtoken:waiters') or {}
    return {left, tonumber(met[1] or 0), met[2] or '0', met[3] or '0', met[4] or '', '0'}
  end
  shelve(task, KEYS[4], id, now, timer(tonumber(look), 0, tonumber(longest)), message, tonumber(deadline), KEYS[5])
  return {left, unpack(note(task, waiters, retried, look, ago, deadline, own, also))}
end
