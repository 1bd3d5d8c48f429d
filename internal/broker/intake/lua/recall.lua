-- Asks for the tasks that a fetch has taken whose reply was lost, and sees to it that it takes none if it comes only
-- later. It must be atomic: else it could come in between.
--
-- KEYS  pending, paused, active and lease of each queue, and the mark of the fetch
-- ARGV  for the fetch: see grant.lua; but 2 is how long the mark stays (s), and 3 when asynq's lease ends now
--
-- Returns what fetch.lua does, for the tasks that are still in the runs of the fetch, and for those that it was to admit: what
-- it has locked for them is locked by the same owner once more. Those that it has parked wait. The
-- leases of the others may be about to end, and asynq would recover them before the server extends them. A task that was
-- recovered meanwhile is in another run: see grant.lua.
call('SET', KEYS[#KEYS], '1', 'EX', ARGV[2])
local reply, name = {}, ARGV[1] .. '.'
for first = 1, #KEYS - 1, 4 do
  local active = KEYS[first + 2]
  for _, id in ipairs(call('LRANGE', active, 0, -1)) do
    local task = hashOf(active, id)
    local run = call('HGET', task, 'pending_since')
    if run and string.sub(run, 1, #name) == name then
      call('ZADD', KEYS[first + 3], ARGV[3], id)
      local number, found = tonumber(string.sub(run, #name + 1)), read(task)
      tell(reply, (first + 3) / 4, id, number, found, found[6] and lock(found, active, id, number, 1), run)
    end
  end
end
take(reply, 1, 0, 1)
return reply
