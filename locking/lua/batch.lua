-- Executes several calls of acquire.lua, renew.lua and release.lua, of one key each, in order: the fixed cost of a
-- script call is then paid once. Each call is atomic for the reason that its own script gives. Effects and replies must
-- be the same as there: a change there is one here, and a test compares them. acquire and release are in one_key.lua,
-- which stands before this text.
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

local function renew(lock, fence, owner, ttl, fence_ttl, token)
  if call('GET', lock) ~= owner then
    return 1
  end
  local counter, marks = call('GET', fence) or '0', nil
  if counter ~= token then
    counter, marks = string.match(counter, '^(%d+)(.*)$')
    if not counter then
      error('FOREIGN no fence counter has the value of ' .. fence, 0)
    end
    if tonumber(counter) > tonumber(token) then
      return 1
    end
  end
  call('PEXPIRE', lock, ttl)
  if marks then
    call('SET', fence, token .. marks, 'PX', fence_ttl)
  else
    call('PEXPIRE', fence, fence_ttl) -- nearly always
  end
  return 0
end

local calls, key, arg = ARGV[1], 1, 2
local replies, errors = {}, {}
for i = 1, #calls do
  local done, reply
  local code = byte(calls, i)
  local lock, fence, subscription = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  if code >= 97 then -- 'a'
    code = code - 97
    done, reply = pcall(acquire, lock, fence, subscription, ARGV[arg], ARGV[arg + 1], ARGV[arg + 2],
      code > 3 and ARGV[arg + 3], code > 4 and ARGV[arg + 4], code > 5 and ARGV[arg + 5])
  elseif code >= 78 then -- 'N'
    code = code - 78
    done, reply = pcall(renew, lock, fence, ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3])
  else
    code = code - 65 -- 'A'
    done, reply = pcall(release, lock, fence, subscription, ARGV[arg], code > 1 and ARGV[arg + 1])
  end
  key, arg = key + 3, arg + code
  if not done then
    -- before Redis 7 some errors have a position in front of them
    reply = string.gsub(reply, '^[@=][^:]*: ?%-?%d+: %-?', '')
    if not string.find(reply, '^%u+ ') then -- an error of the script itself
      reply = 'ERR ' .. reply
    end
    if string.find(reply, 'READONLY', 1, true) then
      return {err = reply}
    end
    errors[#errors + 1] = i
    errors[#errors + 1] = reply
    reply = false
  end
  replies[i] = reply or false -- nil would end the list
end
if #errors > 0 then
  replies[#calls + 1] = errors
end
return replies
