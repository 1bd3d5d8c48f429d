-- Defines other_server(expected), which tells a lock script whether the server is still the one that was vetted
-- (docs/design.md, 3.6). It must run in the same script as the lock: between the look at the server and the grant
-- nothing may change.
--
-- Put this text in front of a script and begin it with
--   local other = other_server(ARGV[n])
--   if other then return other end
-- where ARGV[n] is Node.Identity.
--
-- Returns nil when the server is the one expected, else the facts about it, for ParseReply:
-- {'other server', INFO server, INFO replication, INFO memory, TIME seconds, TIME microseconds}.
local function other_server(expected)
  local server, replication = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
  local run_id = string.match(server, '\nrun_id:(%x+)\r')
  local repl_id = string.match(replication, '\nmaster_replid:(%x+)\r')
  local master = string.find(replication, '\nrole:master\r', 1, true)
  if run_id and repl_id and expected == run_id .. ' ' .. repl_id and master then
    return nil
  end
  local now = redis.call('TIME')
  return {'other server', server, replication, redis.call('INFO', 'memory'), now[1], now[2]}
end
