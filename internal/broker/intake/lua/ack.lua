-- Ends runs by asynq's own script, which stands in the place below, releases the locks of their tasks, wakes the next tasks
-- that are parked on their keys, and takes the next tasks for the slots that are free then. Several acknowledgements may
-- come in one call: about half of what a script costs the server is the call itself. Each of them must be atomic, so that a
-- reply which is lost is lost for all: the run has ended, or it has not. One that fails leaves the others as they are.
--
-- KEYS  of each acknowledgement: those of asynq's script, then the locks of its task; then, once, pending, paused,
--       active and lease of each queue, and the mark of a fetch that was recalled
-- ARGV  1 how many acknowledgements   2... for the fetch: see grant.lua; most is negative if it may take only tasks that are woken here
--       then of each acknowledgement: how many keys and how many arguments asynq's script has, these arguments, then
--       1 position of the task's hash in its keys   2 its run   3 owner of the locks
--       4 1 when the run has not succeeded if one of them was lost   5 'leaves' when the task gives up its place in the
--       sequence of its only key, 'stays' when it keeps it, or ''   6 how many tasks to wake that are parked on each key,
--       0 when the client does: the first of them takes it, and the others are woken only if the fetch takes them, to follow
--       that one   7 1 when the locks were handed off: they are not released, none takes them, and another may have released
--       them since   8 how many locks   9... the token of each
--       If ends are marked, the marks of the queue follow the locks in the KEYS, and the mark of the end, when the task is
--       archived and why (see mark), and when others may tell it (ms from now) follow the tokens: '', '' and 0 for none
--
-- Returns a list with the reply to each acknowledgement, then the tasks as fetch.lua does, and one more list with the
-- position and the text of each error if there are any. A reply is 1 when the run has ended; or a list: 1, or 0 when the
-- run was over, or 2 when a lock was lost and the run goes on; the position of the first lock that another owner has had
-- since, or 0, negative if that owner knows no fence counters and so wakes no task; how many have a subscription; the number of keys that have parked tasks of which none was woken; then, for
-- each key whose tasks were woken: {its position, tasks left, how many of the woken ones are still pending, their
-- entries...}. When the run was over, nothing was done but the release and its wakes. An error is that of asynq's script.
-- READONLY is the error of all: nothing was done then.

-- Whether ends are marked.
local marks = --MARKS--

-- Runs that done.lua ends, by the key of asynq's count of the day.
local days = {}

-- The names of the hashes of tasks that have ended so, which are deleted.
local deleted = {}

local function acknowledge(KEYS, ARGV)
--SCRIPT--
end

-- calls(command, list, key) calls a command, of a key or of none, for parts of a list, which may be longer than a call can
-- have arguments, and returns the list of what it answers to each element, if it answers lists.
local function calls(command, list, key)
  local answers = {}
  for from = 1, #list, 1000 do
    local upto, answer = math.min(from + 999, #list), nil
    if key then
      answer = call(command, key, unpack(list, from, upto))
    else
      answer = call(command, unpack(list, from, upto))
    end
    if type(answer) == 'table' then
      if from == 1 and upto == #list then
        return answer
      end
      for i, value in ipairs(answer) do
        answers[from + i - 1] = value
      end
    end
  end
  return answers
end

-- The acknowledgements: where their keys, and their arguments behind those of asynq's script, begin; and what is known
-- of their locks, whose names and subscriptions are looked up together.
local acks, key, arg = {}, 1, 14 + tonumber(ARGV[13])
arg = arg + 1 + 5 * tonumber(ARGV[arg])
local names, freed = {}, {}
for i = 1, tonumber(ARGV[1]) do
  local keys, at = tonumber(ARGV[arg]), arg + 1 + tonumber(ARGV[arg + 1])
  local held, read = tonumber(ARGV[at + 8]), #names
  acks[i] = {key = key, keys = keys, arg = arg + 2, at = at, held = held, read = read, kept = ARGV[at + 7] == '1',
    lost = 0, subscribed = 0, parked = 0, failed = false}
  for k = key + keys, key + keys + held - 1 do
    local lock = KEYS[k]
    names[read + 1], names[read + 2] = lock, lock .. ':notify'
    read = read + 2
  end
  key, arg = key + keys + held, at + 9 + held
  if marks then
    acks[i].marks, acks[i].mark = key, arg
    key, arg = key + 1, arg + 3
  end
end
local queues = key
-- The last names are flags of the queues: somebody waits for the end of a task there.
local flags = #names
for k = queues, #KEYS - 1, 4 do
  names[#names + 1] = string.sub(KEYS[k], 1, -8) .. 'awaited'
end
local values = calls('MGET', names)
local awaited = false
for i = flags + 1, #names do
  awaited = awaited or values[i]
end

-- Locks of whose release another caller has heard.
local heard = {}

-- How many released keys are to wake a task that takes the key.
local firsts = 0

-- free(a) finds out which locks of an acknowledgement are to be released, and which were lost.
local function free(a)
  local owner = ARGV[a.at + 3]
  for i = 1, a.held do
    local read = a.read + 2 * i
    local lock, value, notify = names[read - 1], values[read - 1], values[read]
    if a.kept then -- the next holder finds out whether it was lost
      notify = value == owner and notify
    elseif value == owner then
      freed[#freed + 1] = lock
      if notify then
        spared[lock], heard[lock] = true, redis.pcall('PUBLISH', lock, '1') ~= 0
      end
    elseif a.lost == 0 and taken(value, lock .. ':fence', ARGV[a.at + 8 + i]) then
      a.lost = taken(false, lock .. ':fence', ARGV[a.at + 8 + i]) and i or -i
    end
    if notify then
      a.subscribed = a.subscribed + 1
      if call('EXISTS', waitersOf(lock)) == 1 then
        a.parked = a.parked + 1
        a.wakes = a.wakes or {}
        a.wakes[i] = value == owner and tonumber(ARGV[a.at + 6])
        if a.wakes[i] and a.wakes[i] > 0 and not a.kept then
          firsts = firsts + 1
        end
      end
    end
  end
end

-- finish(a) ends a run.
local function finish(a)
  local at = a.at
  local ended = 1
  local task, run, waiters = KEYS[a.key + ARGV[at + 1] - 1], nil, nil
  if a.parked == 0 then
    run = call('HGET', task, 'pending_since')
  else
    run, waiters = unpack(call('HMGET', task, 'pending_since', 'railtoken:waiters'))
  end
  if run ~= ARGV[at + 2] then
    ended = 0
  elseif a.lost ~= 0 and ARGV[at + 4] == '1' then
    ended = 2
  else
    local channels = awaited and call('HGET', task, 'railtoken:awaited')
    local done = acknowledge({unpack(KEYS, a.key, a.key + a.keys - 1)}, {unpack(ARGV, a.arg, at)})
    if done.err then -- the task is not active any more; its hash may still have the run
      if a.held == 0 or not string.find(done.err, 'NOT FOUND', 1, true) then
        return done
      end
      ended = 0
    elseif waiters then
      a.task, a.left = task, waiters
    end
    if ended == 1 and marks and ARGV[a.mark] ~= '' then
      mark(KEYS[a.marks], ARGV[a.mark], ARGV[a.mark + 2], task, ARGV[a.mark + 1])
    end
    if ended == 1 and channels then
      notice(channels, task)
    end
    if ended == 1 and ARGV[at + 5] == 'leaves' then
      load()
      pcall(depart, task, KEYS[a.key + a.keys]) -- those behind it pass an entry that is left over
    end
  end
  if ended == 1 and a.lost == 0 and a.subscribed == 0 then
    return 1
  end
  return {ended, a.lost, a.subscribed, a.parked}
end

local replies, errors, readonly = {}, {}, nil

-- try(does, i) has a part of the work done for an acknowledgement. It returns the answer, false after an error.
local function try(does, i)
  local ok, answer = pcall(does, acks[i])
  local failure
  if not ok then
    failure = plain(answer)
  elseif type(answer) == 'table' and answer.err then
    failure = plain(answer.err)
  else
    return answer
  end
  readonly = readonly or string.find(failure, 'READONLY', 1, true) and failure
  errors[#errors + 1], errors[#errors + 2] = i, failure
  acks[i].failed = true
  return false
end

for i, a in ipairs(acks) do
  if a.held > 0 then
    try(free, i)
  end
end
local ok, failure = pcall(calls, 'DEL', freed)
if not ok then
  return {err = plain(failure)}
end
for i in ipairs(acks) do
  replies[i] = not acks[i].failed and try(finish, i)
  if readonly then
    return {err = readonly}
  end
end
-- The runs have ended. A key that is not what asynq has made of it must not keep the rest from that.
for day, d in pairs(days) do
  pcall(calls, 'ZREM', d.ids, d.lease)
  pcall(calls, 'DEL', d.tasks)
  for _, task in ipairs(d.tasks) do
    deleted[task] = true
  end
  local counted, n = pcall(call, 'INCRBY', day, #d.ids)
  if counted and n == #d.ids then
    call('EXPIREAT', day, d.expiry)
  end
  if not pcall(call, 'INCRBY', d.total, #d.ids) then -- asynq's count begins anew after the largest number
    call('SET', d.total, #d.ids)
  end
end

local tasks, most = {}, math.abs(tonumber(ARGV[3]))
local lists, woken = {}, 0

-- The positions of the queues of the fetch, by the names of their pending lists; and how many tasks are pending in those before.
local positions, before = {}, {}

-- comesBefore(position) returns whether the fetch has too few slots for the tasks that take keys and for those of the queues that come
-- before one in its order.
local function comesBefore(position)
  if not before[position] then
    local n, order = 0, ARGV[14]
    for j = 1, #order do
      local k = queues + 4 * (string.byte(order, j) - 1)
      if string.byte(order, j) == position then
        break
      elseif call('EXISTS', KEYS[k + 1]) == 0 then
        n = n + call('LLEN', KEYS[k])
      end
    end
    before[position] = n
  end
  return before[position] > most - firsts
end

-- follows(lock, waiters, takers, n) returns whether the first n tasks that are parked on a key can come now. So many of them take
-- the key; the others follow its next holder in memory, where their server must be able to keep them, and need no slot. The fetch
-- must have slots for those that take keys, and no caller of another process and no queue may come before.
local function follows(lock, waiters, takers, n)
  if ARGV[2] == '' or heard[lock] then
    return false
  end
  if not next(positions) then
    for k = queues, #KEYS - 1, 4 do
      positions[KEYS[k]] = (k - queues) / 4 + 1
    end
  end
  local entries, types = call('ZRANGE', waiters, 0, n - 1), ARGV[5]
  for i, entry in ipairs(entries) do
    local _, prefix, task = parse(entry)
    local position = positions[prefix .. 'pending']
    if not position then
      return false
    elseif i > takers then
      local kind = kindOf(call('HGET', task, 'msg'))
      local _, found = string.find(types, '|' .. (kind or '') .. '=', 1, true)
      if not found or not string.find(types, '^%d+,', found + 1) or comesBefore(position) then
        return false
      end
    end
  end
  return #entries == n
end

-- wake(a, reply) wakes the next tasks that are parked on the keys of an acknowledgement, and adds to its reply which. It
-- returns whether it has left some to the client. The fetch may take the key for a task that was woken, unless a caller
-- has heard of the release.
local function wake(a, reply)
  local left = false
  for i = 1, a.held do
    local lock, list = KEYS[a.key + a.keys + i - 1], nil
    local waiters, sequence = waitersOf(lock), nil
    local wanted = wakeReleased and a.wakes[i] or 0
    local takers = a.kept and 0 or 1
    while wanted > takers and not follows(lock, waiters, takers, wanted) do
      wanted = wanted - 1
    end
    if wanted > 0 then
      if ARGV[a.at + 5] ~= '' then
        sequence = 'railtoken:sequence:' .. string.match(lock, '{.*}$')
      end
      list = wakeReleased(waiters, wanted, ARGV[11], ARGV[12], sequence)
    end
    if list then
      a.parked, reply[4] = a.parked - 1, reply[4] - 1
      reply[#reply + 1] = {i, list[1], 0, unpack(list, 2)}
      local tasks = {}
      for n = 2, #list do
        local _, _, task = parse(list[n])
        tasks[n - 1], followers[task] = task, n - 1 > takers or nil
      end
      lists[#lists + 1] = {reply[#reply], tasks}
      woken = woken + math.min(takers, #tasks)
      spared[lock] = heard[lock]
    end
    left = left or a.wakes[i] ~= nil and not list and not a.kept and ARGV[a.at + 5] ~= 'stays'
  end
  return left
end

-- Tasks whose runs have ended are not to be woken themselves.
for _, a in ipairs(acks) do
  if a.parked > 0 then
    load()
    if a.left and leaveWaiters then
      pcall(leaveWaiters, a.task, a.left, deleted[a.task])
    end
  end
end
-- The tasks that are woken are at the heads of their queues, so that the fetch below takes them before others there. Where
-- the client wakes them later, a slot is left for one: another task would run in vain.
local later = 0
for i, a in ipairs(acks) do
  if a.parked > 0 then
    local ok, left = not a.failed, true
    if ok then
      ok, left = pcall(wake, a, replies[i])
    end
    if left or not ok then
      later = later + 1
    end
  end
end
if later > 0 then
  most = math.min(most, #acks - later)
end
if string.sub(ARGV[3], 1, 1) == '-' then
  most = math.min(most, woken)
end
if ARGV[2] ~= '' and call('EXISTS', KEYS[#KEYS]) == 0 then
  take(tasks, queues, most, 2) -- an error of the next fetch must not look like one of an acknowledgement
end
local waits = {} -- tasks that were woken and have no slot here, by the keys of their queues
for _, each in ipairs(lists) do
  for _, task in ipairs(each[2]) do
    if not granted[task] then
      each[1][3] = each[1][3] + 1
      local pending = string.match(task, '^(asynq:{.*}:)t:') .. 'pending'
      waits[pending] = (waits[pending] or 0) + 1
    end
  end
end
for pending, n in pairs(waits) do
  pcall(ready, pending, n)
end
replies[#acks + 1] = tasks
if #errors > 0 then
  replies[#acks + 2] = errors
end
return replies
