-- Executes several calls of acquire, renew and release (locks.lua of package lockwire), of one key each, in order: the fixed
-- cost of a script call is then paid once. Each of them is atomic.
--
-- KEYS  for each call: lock, fence counter, subscription
-- ARGV  1 a byte for each call: 'a' + the number of its arguments for acquire, 'N' + it for renew, 'A' + it for release
--       2... the arguments of each call, one after another
--
-- Returns the list of the replies. An error of one call leaves the others as they are: one more list then holds the
-- position and the text of each error (an error reply within the list would confuse go-redis). Only READONLY is the
-- error of all: nothing was executed then, and a client leaves such a server. A Redis that is out of memory grants what
-- follows a release or a renewal, because it refuses no script that has already written.
local byte = string.byte
local calls, key, arg = ARGV[1], 1, 2
local replies, errors = {}, {}
for i = 1, #calls do
  local code, does = byte(calls, i), acquire
  if code >= 97 then -- 'a'
    code = code - 97
  elseif code >= 78 then -- 'N'
    code, does = code - 78, renew
  else
    code, does = code - 65, release -- 'A'
  end
  local done, reply = pcall(does, KEYS, key, key + 2, unpack(ARGV, arg, arg + code - 1))
  key, arg = key + 3, arg + code
  local failure = not done and reply or type(reply) == 'table' and reply.err
  if failure then
    failure = plain(failure)
    if string.find(failure, 'READONLY', 1, true) then
      return {err = failure}
    end
    errors[#errors + 1] = i
    errors[#errors + 1] = failure
    reply = false
  end
  replies[i] = reply or false -- nil would end the list
end
if #errors > 0 then
  replies[#calls + 1] = errors
end
return replies
