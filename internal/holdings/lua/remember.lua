-- Adds what a worker has seen since its last report to the history of a minute. It must be atomic, because several
-- workers add to the same minute.
--
-- KEYS  1 the history of the minute, a hash
-- ARGV  1 how long it is kept (ms)   2 most keys in it   3 '1' when the worker has left keys out, else ''
--       then, of all keys together and of each single key: its field, waiting tasks, the longest wait (ms), holds, wakes,
--       refusals. The first is the field all.
--
-- Of the first two numbers the larger counts, the others are added up. The field keys is how many single keys there are,
-- and left is there once some were left out. Returns 1 when nobody has reported of this minute before, else 0.
local history, most = KEYS[1], tonumber(ARGV[2])
local known = redis.call('HMGET', history, 'all', 'keys')
local begun, keys, left = not known[1], tonumber(known[2] or 0), ARGV[3] == '1'
local changes = {}
for i = 4, #ARGV, 6 do
  local old = i == 4 and known[1] or i > 4 and redis.call('HGET', history, ARGV[i])
  if not old and i > 4 then
    keys = keys + 1
  end
  if old or keys <= most then
    local sum = {string.match(old or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')}
    for n = 1, 5 do
      local before, now = tonumber(sum[n] or 0), tonumber(ARGV[i + n])
      sum[n] = string.format('%.0f', n <= 2 and math.max(before, now) or before + now)
    end
    changes[#changes + 1] = ARGV[i]
    changes[#changes + 1] = table.concat(sum, ' ')
  else
    keys, left = most, true
  end
end
if left then
  changes[#changes + 1] = 'left'
  changes[#changes + 1] = '1'
end
redis.call('HSET', history, 'keys', keys, unpack(changes))
if begun then
  redis.call('PEXPIRE', history, ARGV[1])
end
return begun and 1 or 0
