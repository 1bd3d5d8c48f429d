-- Part of the scripts that fetch and acknowledge tasks: the head rule for tasks that keep an order (docs/design.md, 5.3). It
-- runs on one node alone.

-- What this call knows of the first tasks of sequences, by the names of the sequences: the entry, and the refusal of those
-- behind it.
local fronts = {}

-- stands(sequence, entry, which is first, asynq's state of its task, how long it is the first at least (ms)) notes the first
-- task, and returns the refusal of the others, in the form of one by acquire.
local function stands(sequence, entry, state, lasts)
  local id, prefix = parse(entry)
  local label = 'the first task of the sequence, ' .. string.sub(prefix, 8, -3) .. '/' .. id .. ' (' .. state .. ')'
  fronts[sequence] = {entry = entry, refusal = {0, 1, '', math.floor(lasts), '0', label}}
  return fronts[sequence].refusal
end

-- passed(state, deadline as head returns it, now (ns)) returns whether a task that waits may be past its deadline: its message
-- has that if it was never refused.
local function passed(state, deadline, now)
  if deadline == '' then
    return state == 'retry'
  end
  return state ~= 'active' and tonumber(deadline) > 0 and tonumber(deadline) <= now / 1e9
end

-- admit(task, entry, key, how the task keeps its position, now (ns), its mark) has a task that is being fetched
-- join the sequence of its key. It returns its place when it is the first, which may take the lock: {sequence, entry, score}; nil and the refusal when
-- it stands behind one that will run or runs; and nothing when its run has to look: the worker of the first may have died.
local function admit(task, entry, key, how, now, mark)
  local sequence = 'railtoken:sequence:{' .. key .. '}'
  local fresh, front = enlist(task, sequence, how, 'pending', mark)[2] == 1, fronts[sequence]
  local found, score = not front and not fresh and redis.call('ZRANGE', sequence, 0, 0, 'WITHSCORES'), nil
  if found and found[1] == entry then
    score = tonumber(found[2])
  else
    score = arrive(sequence, entry, nil, fresh)
  end
  if front and front.entry ~= entry then
    return nil, front.refusal
  end
  for _ = 1, 10 do
    local first = found and found[1] or redis.call('ZRANGE', sequence, 0, 0)[1]
    found = nil
    if first == entry then
      stands(sequence, entry, 'active', (left_after + lost_after) * 1000)
      return {sequence, entry, score}
    end
    local id, _, hash = parse(first)
    local verdict, state, at, deadline = unpack(head(hash, sequence, id, now, lost_after, left_after))
    if verdict == 'gone' then
      redis.call('ZREM', sequence, first)
    elseif verdict == 'lost' or verdict == 'left' or verdict == 'later' or verdict ~= 'failed' and passed(state, deadline, now) then
      return nil
    else
      if verdict == 'failed' then -- nobody releases the key when an operator deletes or archives it
        local waiters = 'railtoken:waiters:{' .. key .. '}'
        owe(indexOf(parked, waiters) .. ':owed', waiters, 1, head_look)
      end
      local lasts = tonumber(at) == 0 and left_after or tonumber(at) - now / 1e9
      return nil, stands(sequence, first, state, math.max(lasts + (verdict == 'runs' and lost_after or 0), 0) * 1000)
    end
  end
end

-- depart(task, lock) removes a task whose run has ended from the sequence of the key of a lock.
local function depart(task, lock)
  local queue, id = string.match(task, '^asynq:{(.-)}:t:(.*)$')
  redis.call('ZREM', 'railtoken:sequence:' .. string.match(lock, '{.*}$'), #queue .. ':' .. queue .. id)
end

-- leaveWaiters(task, waiters, whether it is deleted) removes a task whose run has ended from the waiters that it was parked among,
-- and its record: a failed task waits for its retry, and not for the key.
local function leaveWaiters(task, waiters, gone)
  local prefix, queue, id = string.match(task, '^(asynq:{(.-)}:)t:(.*)$')
  if queue and waiters ~= '' and not apart(laneOf(waiters), prefix) then -- a wake of those in another lane finds it gone
    local entry = #queue .. ':' .. queue .. id
    if redis.call('ZREM', waiters, entry) == 1 then -- otherwise it was woken
      redis.call('ZREM', indexOf(parked, waiters), entry)
    end
  end
  if not gone then
    forget(task)
  end
end
