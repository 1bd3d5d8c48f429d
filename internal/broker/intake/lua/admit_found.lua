-- Takes the locks of tasks that a fetch has taken without them, because their keys were not recorded: their server has found
-- them in the tasks. A task whose key is held may be parked, as grant.lua does. It must be one script with the looks at the
-- locks: a release comes before, or finds the tasks among the waiters. Each task must still be in the run that the fetch has
-- begun; otherwise it is left alone.
--
-- KEYS  pending, paused, active and lease of each queue, and the mark of a call that was sent again
-- ARGV  1 to 12 as for a fetch without orders: see grant.lua; but 2 is how long the mark stays (s), or 0 for the first attempt
--       13... of each task: position of its queue, ID, its number in the fetch, its keys as they are recorded, and what its
--       message begins with: the field of its type
--
-- Returns a list with what lock of grant.lua returns for each task, and one more if tasks were parked: see settle. A task that
-- was parked, or is in another run, has 0: its server must not run it. A repeated call finds so what the first one has parked.
-- The keys of a task that was parked are recorded with it, so the wake takes them.
local mark, stays = KEYS[#KEYS], tonumber(ARGV[2])
if stays > 0 then
  call('SET', mark, '1', 'EX', stays)
elseif call('EXISTS', mark) == 1 then
  return {}
end

-- admitted(queue, id, number, recorded, head) returns what is replied for a task.
local function admitted(queue, id, number, recorded, head)
  local k, kind = 4 * queue - 3, kindOf(head)
  local task = hashOf(KEYS[k], id)
  local run = call('HMGET', task, 'pending_since', 'state')
  if run[1] ~= ARGV[1] .. '.' .. number or run[2] ~= 'active' then
    return 0
  end
  ttlOf(ARGV[4], kind)
  local found, group, counters = orders[kind] and read(task) or {head}, groups[recorded], nil
  found[6] = recorded
  if suits(group, queue, head) and not group.alone then
    counters = group.counters
  else
    counters = lock(found, KEYS[k], id, tonumber(number), 1)
  end
  if counters and counters[1] == 0 and spaces > 0 then
    parks = parks or parking()
    found = read(task)
    found[6] = recorded
    if parks(queue, k, id, task, found, counters, 1) then
      call('HSET', task, 'railtoken:keys', recorded)
      call('ZREM', KEYS[k + 3], id)
      return 0
    end
  end
  return counters
end

local reply, n = {}, 0
for at = 13, #ARGV, 5 do
  local ok, answer = pcall(admitted, tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
  n = n + 1
  reply[n] = ok and answer -- after an error its run tries to lock the keys
end
reply[n + 1] = parked
return reply
