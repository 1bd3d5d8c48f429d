-- Asks for the tasks that a call has taken whose reply was lost, and sees to it that it takes none if it comes only
-- later. It must be atomic: else it could come in between.
--
-- KEYS  pending, paused, active and lease of each queue, and the mark of the call
-- ARGV  1 name of the call   2 how long the mark stays (s)   3 when the lease ends (s)
--       4 to 9 for locks: see grant.lua
--
-- Returns what fetch.lua does.
redis.call('SET', KEYS[#KEYS], '1', 'EX', ARGV[2])
local reply = {}
granted(reply, 1, (#KEYS - 1) / 4, ARGV[1], ARGV[3], 4)
return reply
