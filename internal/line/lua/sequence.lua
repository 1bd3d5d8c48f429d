-- Part of the scripts: the sequence of a key, in the slot of the key: entry -> position (us), and half a microsecond more once
-- the task has begun to work: a task whose worker dies has then failed.

-- arrive(sequence, entry, position that the task had before (us) or nil, whether an entry that is there is of an earlier enqueue)
-- adds a task, unless it is there. Returns its score. A new position is later than all others, also when two arrive in the same
-- microsecond or the clock of the server was set back.
local function arrive(sequence, entry, position, fresh)
  if fresh then
    redis.call('ZREM', sequence, entry)
  end
  local score = tonumber(redis.call('ZSCORE', sequence, entry) or nil)
  if score then
    return score
  end
  score = position
  if not score then
    score = micros()
    local last = redis.call('ZRANGE', sequence, -1, -1, 'WITHSCORES')[2]
    if last then
      score = math.max(score, math.floor(tonumber(last)) + 1)
    end
  end
  redis.call('ZADD', sequence, string.format('%d', score), entry)
  redis.call('PERSIST', sequence) -- it lives as long as its tasks
  return score
end

-- begin(sequence, entry, score) notes that the first task begins to work.
local function begin(sequence, entry, score)
  if score == math.floor(score) then
    redis.call('ZADD', sequence, 'XX', string.format('%d.5', score), entry)
  end
end
