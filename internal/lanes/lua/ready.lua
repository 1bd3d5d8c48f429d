-- ready(pending, n) tells idle servers that n tasks have come into a queue, if it is in a lane and no others are pending there: the
-- servers that are not idle come by themselves. It is a hint, so nothing depends on it, and a Redis user who may not call what it
-- calls goes on without it. pending is declared by the caller.
local function ready(pending, n)
  local queue, lane = string.match(pending, '^asynq:{(.*@(%d+)%-%w%w%w)}:pending$')
  local there = queue and redis.pcall('LLEN', pending)
  if there == n or type(there) == 'table' then -- or it cannot be told whether there are others
    redis.pcall('PUBLISH', 'railtoken:ready:' .. lane, queue)
  end
end
