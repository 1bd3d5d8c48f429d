-- Notes the end of a task that another program has archived. It must be atomic: of several servers, one notes it, and only while
-- the task is in the archive since then.
--
-- KEYS  1 the task's hash   2 archived of its queue   3 marks   ARGV  1 ID   2 when it was archived (s)   3 mark   4 archived: see
-- mark
--
-- Returns 1 when it was noted, else 0.
local at = redis.call('ZSCORE', KEYS[2], ARGV[1])
local told = redis.call('HGET', KEYS[1], 'railtoken:ended')
if not at or tonumber(at) ~= tonumber(ARGV[2]) or told and tonumber(string.match(told, '^%d+')) >= tonumber(ARGV[2]) then
  return 0
end
mark(KEYS[3], ARGV[3], 0, KEYS[1], ARGV[4])
return 1
