-- ready(pending, n) tells idle servers that n tasks have come into a queue, if it is in a lane and no others are pending there: the
-- servers that are not idle come by themselves. It is a hint, so nothing depends on it. pending is declared by the caller.
local function ready(pending, n)
  local queue = string.match(pending, '^asynq:{(.*@%d+%-%w%w%w)}:pending$')
  if queue and redis.call('LLEN', pending) == n then
    redis.pcall('PUBLISH', 'railtoken:ready', queue)
  end
end
