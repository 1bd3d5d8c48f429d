-- Ends runs by asynq's own script, which stands in the place below, releases the locks of their tasks, and takes the next
-- tasks for the slots that are free then. Several acknowledgements may come in one call: about half of what a script
-- costs the server is the call itself. Each of them must be atomic, so that a reply which is lost is lost for all: the
-- run has ended, or it has not. One that fails leaves the others as they are.
--
-- KEYS  of each acknowledgement: those of asynq's script, then of each lock its name, fence counter and subscription;
--       then, once, pending, paused, active and lease of each queue
-- ARGV  of each acknowledgement: how many keys and how many arguments asynq's script has, these arguments, then
--       1 position of the task's hash in its keys   2 its run   3 name of this acknowledgement   4 most tasks
--       5 when their lease ends (s)   6 1 when it was sent before   7 to 12 for locks: see grant.lua
--       13 owner of the locks   14 1 when the run has not succeeded if one of them was lost   15 how many locks
--       16 how many orders   then the token of each lock, and the orders in which to look at the queues
--
-- Returns a list with the reply to each acknowledgement, and one more list with the position and the text of each error
-- if there are any. A reply is 1, or 0 when the run is over, or 2 when a lock was lost and the run goes on; the position
-- of the first lock that another owner has had since, or 0; how many have a subscription; for how many of them tasks are
-- parked; and then a list of tasks as fetch.lua does. When the run was over, nothing was done but the release, unless by
-- an earlier copy of the acknowledgement, whose tasks are returned again. An error is that of asynq's script. READONLY
-- is the error of all: nothing was done then.

-- Runs that done.lua ends, by the key of asynq's count of the day.
local days = {}

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
      answer = redis.call(command, key, unpack(list, from, upto))
    else
      answer = redis.call(command, unpack(list, from, upto))
    end
    if type(answer) == 'table' then
      for i, value in ipairs(answer) do
        answers[from + i - 1] = value
      end
    end
  end
  return answers
end

-- The acknowledgements: where their keys, and their arguments behind those of asynq's script, begin; and what is known
-- of their locks.
local acks, key, arg = {}, 1, 1
local names, freed = {}, {}
while arg <= #ARGV do
  local keys, at = tonumber(ARGV[arg]), arg + 1 + tonumber(ARGV[arg + 1])
  local held, orders = tonumber(ARGV[at + 15]), tonumber(ARGV[at + 16])
  acks[#acks + 1] = {key = key, keys = keys, arg = arg, at = at, held = held, orders = orders, most = 0, read = #names}
  for k = key + keys, key + keys + 3 * held - 1, 3 do
    names[#names + 1], names[#names + 2] = KEYS[k], KEYS[k + 2]
  end
  key, arg = key + keys + 3 * held, at + 17 + held + orders
end
local queues = key
local values = calls('MGET', names)

-- free(a) finds out which locks of an acknowledgement are to be released, and which were lost.
local function free(a)
  a.lost, a.subscribed, a.parked = 0, 0, 0
  for i = 1, a.held do
    local k, read = a.key + a.keys + 3 * i - 3, a.read + 2 * i - 1
    local value, notify = values[read], values[read + 1]
    if value == ARGV[a.at + 13] then
      freed[#freed + 1] = KEYS[k]
      if notify then
        redis.pcall('PUBLISH', KEYS[k], '1')
      end
    elseif a.lost == 0 and taken(value, KEYS[k + 1], ARGV[a.at + 16 + i]) then
      a.lost = i
    end
    if notify then
      a.subscribed = a.subscribed + 1
      a.parked = a.parked + waiting(KEYS[k])
      spared[KEYS[k]] = true
    end
  end
end

-- finish(a) ends a run, and says how many tasks are to be taken instead.
local function finish(a)
  local at = a.at
  local function over()
    local reply = {0, 0, a.subscribed, a.parked}
    if ARGV[at + 6] == '1' then
      granted(reply, queues, (#KEYS - queues + 1) / 4, ARGV[at + 3], ARGV[at + 5], at + 7)
    end
    return reply
  end
  if redis.call('HGET', KEYS[a.key + ARGV[at + 1] - 1], 'railtoken:run') ~= ARGV[at + 2] then
    return over()
  end
  if a.lost > 0 and ARGV[at + 14] == '1' then
    return {2, a.lost, a.subscribed, a.parked}
  end
  local keys, args = {}, {}
  for i = 1, a.keys do
    keys[i] = KEYS[a.key + i - 1]
  end
  for i = 1, at - a.arg - 1 do
    args[i] = ARGV[a.arg + 1 + i]
  end
  local done = acknowledge(keys, args)
  if done.err then -- the task is not active any more; its hash may still have the run
    return (ARGV[at + 6] == '1' or a.held > 0 and string.find(done.err, 'NOT FOUND', 1, true)) and over() or done
  end
  -- A parked task is woken first: one that came later would have the key before it.
  if a.parked == 0 then
    a.most = tonumber(ARGV[at + 4])
  end
  return {1, a.lost, a.subscribed, a.parked}
end

-- plain(failure) returns an error as Redis sends it, without the position that those of Redis before 7 have.
local function plain(failure)
  return (string.gsub(failure, '^[@=][^:]*: ?%-?%d+: %-?', ''))
end

local replies, errors, readonly = {}, {}, nil

-- try(does, i) has a part of the work done for an acknowledgement. It returns the answer, false after an error.
local function try(does, i)
  local ok, answer = pcall(does, acks[i])
  local failure = not ok and plain(answer) or ok and answer and answer.err
  if not failure then
    return answer
  end
  readonly = readonly or string.find(failure, 'READONLY', 1, true) and failure
  errors[#errors + 1], errors[#errors + 2] = i, failure
  acks[i].failed = true
  return false
end

for i = 1, #acks do
  try(free, i)
end
local ok, failure = pcall(calls, 'DEL', freed)
if not ok then
  return {err = plain(failure)}
end
for i, a in ipairs(acks) do
  replies[i] = not a.failed and try(finish, i)
  if readonly then
    return {err = readonly}
  end
end
-- The runs have ended. A key that is not what asynq has made of it must not keep the rest from that.
for day, d in pairs(days) do
  pcall(calls, 'ZREM', d.ids, d.lease)
  pcall(calls, 'DEL', d.tasks)
  local counted, n = pcall(redis.call, 'INCRBY', day, #d.ids)
  if counted and n == #d.ids then
    redis.call('EXPIREAT', day, d.expiry)
  end
  if not pcall(redis.call, 'INCRBY', d.total, #d.ids) then -- asynq's count begins anew after the largest number
    redis.call('SET', d.total, #d.ids)
  end
end
for i, a in ipairs(acks) do
  if a.most > 0 then -- an error of the next fetch must not look like one of the acknowledgement
    local at = a.at
    pcall(grant, replies[i], queues, a.most, ARGV[at + 3], ARGV[at + 5], at + 7, at + 17 + a.held, a.orders)
  end
end
pcall(lease)
if #errors > 0 then
  replies[#acks + 1] = errors
end
return replies
