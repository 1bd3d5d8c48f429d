-- Functions of the scripts that end tasks.

-- mark(marks, member, after (ms), task, archived) notes an end: another process may tell it after that time. archived is
-- when the task was archived (s) and why, or ''.
local function mark(marks, member, after, task, archived)
  local time = redis.call('TIME')
  redis.call('ZADD', marks, time[1] * 1000 + math.floor(time[2] / 1000) + after, member)
  if archived ~= '' then
    redis.call('HSET', task, 'railtoken:ended', archived)
  end
end

-- notice(channels, task) tells those who wait for the end of a task, by the name of its hash. A user may not be allowed to.
local function notice(channels, task)
  for channel in string.gmatch(channels or '', '[^ ]+') do
    redis.pcall('PUBLISH', channel, task)
  end
end
