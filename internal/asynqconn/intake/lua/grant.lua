-- Part of the scripts: takes tasks for one server of asynq. The queues are KEYS from first on, four of each: pending,
-- paused, active and lease. A task that is granted is active, and its run has a name that begins with that of the call.

-- taskOf(pending or active key, ID) returns the name of a task's hash.
local function hashOf(key, id)
  return string.match(key, '^(.*}:)') .. 't:' .. id
end

-- told(reply, queue, id, run, task) adds a granted task to a reply: position of its queue, ID, run, message, retry count
-- of the record, conflicts, first conflict (us), and '1' when it was woken.
local function tell(reply, queue, id, run, task)
  local found = redis.call('HMGET', task, 'msg', 'railtoken:retried', 'railtoken:conflicts', 'railtoken:first', 'railtoken:woken')
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = queue, id, run
  for i = 1, 5 do
    reply[n + 3 + i] = found[i]
  end
  return found[1], found[5]
end

-- grant(reply, first, most, call, lease, at) takes as many tasks as most says and adds them to a reply. The queues that
-- each of them is looked for in are a byte each, in ARGV from at on; the last order is that of all further ones. lease
-- is when asynq's lease ends (s). A paused queue has no task, and one whose hash is gone is left to asynq. Long messages
-- come in several calls, or a slow network would not bring the reply in time.
local function grant(reply, first, most, call, lease, at)
  local empty, open = {}, {}
  local room = 1000000 -- bytes of messages
  local order = ''
  for i = 1, most do
    order = ARGV[at + i - 1] or order
    local id, queue
    for j = 1, #order do
      local q = string.byte(order, j)
      local k = first + 4 * (q - 1)
      if not open[q] and not empty[q] then
        open[q] = redis.call('EXISTS', KEYS[k + 1]) == 0
        empty[q] = not open[q]
      end
      if not empty[q] then
        id = redis.call('RPOPLPUSH', KEYS[k], KEYS[k + 2])
        if id then
          queue = q
          break
        end
        empty[q] = true
      end
    end
    if not id then
      return
    end
    local k = first + 4 * (queue - 1)
    local task, run = hashOf(KEYS[k], id), call .. '.' .. i
    redis.call('ZADD', KEYS[k + 3], lease, id) -- whatever fails from here on, asynq recovers the task
    redis.call('HSET', task, 'state', 'active', 'railtoken:run', run)
    local message = tell(reply, queue, id, run, task)
    redis.call('HDEL', task, 'pending_since', 'railtoken:woken')
    room = room - (message and #message or 0)
    if room <= 0 then
      return
    end
  end
end

-- granted(reply, first, queues, call, lease) adds what an earlier copy of a call has taken, and is still in that run. Its
-- lease may be about to end, or asynq would recover it before the server extends it.
local function granted(reply, first, queues, call, lease)
  for q = 1, queues do
    local active = KEYS[first + 4 * (q - 1) + 2]
    for _, id in ipairs(redis.call('LRANGE', active, 0, -1)) do
      local task = hashOf(active, id)
      local run = redis.call('HGET', task, 'railtoken:run')
      if run and string.sub(run, 1, #call + 1) == call .. '.' then
        redis.call('ZADD', KEYS[first + 4 * (q - 1) + 3], lease, id)
        tell(reply, q, id, run, task)
      end
    end
  end
end
