-- Deletes the locks that still belong to one owner, and tells whoever showed interest (docs/design.md, 3.4, RELEASE). It must be
-- atomic: compare and delete, or it could delete the lock of the next owner. Fence counters stay; they expire.
--
-- KEYS  for each key: lock, fence counter, interest mark
-- ARGV  1 owner value   2... the token of each key, none when the attempt did not learn them
--
-- Returns {position of the first key that somebody else has had since, or 0; how many keys somebody showed interest in},
-- or only 0 for {0, 0}, which is nearly always.
-- A lock that is gone while no later token was given is no loss: it ran out. The position proves nothing when a release without an answer was
-- sent before: that one may have released the key, and another has it since. The marks stay: whoever is parked renews its own, and an
-- outdated one costs a look, nothing else. The channel of a notice is the name of the lock. A notice is a hint: a user who may not publish, as
-- is the default since Redis 7, has released the lock all the same.
local owner = ARGV[1]
local lost, contended = 0, 0
for i = 1, #KEYS, 3 do
  local lock = KEYS[i]
  local value = redis.call('GET', lock)
  local interest = redis.call('EXISTS', KEYS[i + 2])
  contended = contended + interest
  if value == owner then
    redis.call('DEL', lock)
    if interest == 1 then
      redis.pcall('PUBLISH', lock, '1')
    end
  elseif lost == 0 then
    local position = (i + 2) / 3
    local token = ARGV[1 + position]
    local counter = token and redis.call('GET', KEYS[i + 1])
    if token and (value or counter and tonumber(string.match(counter, '^%d+')) > tonumber(token)) then
      lost = position
    end
  end
end
if lost == 0 and contended == 0 then
  return 0
end
return {lost, contended}
