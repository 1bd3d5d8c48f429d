-- Deletes the locks that still belong to one owner, and notifies subscribers (docs/design.md, 3.4, RELEASE). It must be
-- atomic: otherwise it could delete the lock of the next owner. Fence counters stay; they expire.
--
-- KEYS  for each key: lock, fence counter, subscription
-- ARGV  1 owner value   2... the token of each key, none when the attempt did not learn them
--
-- Returns {position of the first key that another owner has had since, or 0; number of keys with a subscription}, or 0
-- for {0, 0}, which is nearly always. A lock that is gone while no later token was given is no loss: it has expired.
-- A lock or a counter of another Redis type counts as another owner's, and the other keys are released all the same. The
-- position proves nothing after an unanswered release: that one may have released the key, and another owner has taken
-- it since. Subscriptions stay: a parked caller renews its own, and an outdated one costs only a look. The channel is
-- the name of the lock. A notification is a hint: a user who may not publish, the default since Redis 7, has still
-- released the lock.
local owner = ARGV[1]
local lost, subscribed = 0, 0
for i = 1, #KEYS, 3 do
  local lock = KEYS[i]
  local value = redis.pcall('GET', lock)
  local notify = redis.call('EXISTS', KEYS[i + 2])
  subscribed = subscribed + notify
  if value == owner then
    redis.call('DEL', lock)
    if notify == 1 then
      redis.pcall('PUBLISH', lock, '1')
    end
  elseif lost == 0 then
    local position = (i + 2) / 3
    local token = ARGV[1 + position]
    local counter = token and redis.pcall('GET', KEYS[i + 1])
    if type(counter) == 'table' then -- an error
      value = counter
    end
    if token and (value or counter and tonumber(string.match(counter, '^%d+') or 0) > tonumber(token)) then
      lost = position
    end
  end
end
if lost == 0 and subscribed == 0 then
  return 0
end
return {lost, subscribed}
