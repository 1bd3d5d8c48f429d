-- Executes several calls of acquire.lua, renew.lua and release.lua, of one key each, in order: the fixed cost of a
-- script call is then paid once. Each call is atomic for the reason that its own script gives. Effects and replies must
-- be the same as there: a change there is one here, and a test compares them.
--
-- KEYS  for each call: lock, fence counter, subscription
-- ARGV  1 a byte for each call: 'a' + the number of its arguments for acquire, 'N' + it for renew, 'A' + it for release
--       2... the arguments of each call, one after another
--
-- Returns the list of the replies. An error of one call leaves the others as they are: one more list then holds the
-- position and the text of each error (an error reply within the list would confuse go-redis). Only READONLY is the
-- error of all: nothing was executed then, and a client leaves such a server. A Redis that is out of memory grants what
-- follows a release or a renewal, because it refuses no script that has already written.
local call, byte = redis.call, string.byte
local now, clock = nil, nil -- of this server (us), as a number and as it is written

local function acquire(lock, fence, subscription, owner, ttl, fence_ttl, proposal, notify, block)
  if not call('SET', lock, owner, 'NX', 'PX', ttl) then
    local value = call('GET', lock)
    if value == owner then
      return tonumber(string.match(call('GET', fence) or '0', '^%d+'))
    end
    notify = tonumber(notify or 0)
    if notify > 0 and notify > call('PTTL', subscription) then
      call('SET', subscription, '1', 'PX', notify)
    end
    return {0, 1, value, call('PTTL', lock), call('GET', fence) or '0'}
  end
  block = block or 1
  local last, text = tonumber(proposal or 0), proposal
  if last <= 0 then
    if not now then
      local time = call('TIME')
      now = time[1] * 1000000 + time[2]
      clock = string.format('%.0f', now)
    end
    local floor = -last
    last, text = now, clock
    if block ~= 1 or floor >= now then
      last = math.max(now - 1, floor) + block
      text = string.format('%.0f', last)
    end
  end
  local before, marks = call('SET', fence, text, 'PX', fence_ttl, 'GET') or 0, ''
  if not tonumber(before) then
    if string.find(before, ' ' .. string.sub(owner, 1, 16) .. '@', 1, true) then
      call('SET', fence, before, 'PX', fence_ttl)
      call('DEL', lock)
      error('GIVENUP the call came after its owner had given the keys up', 0)
    end
    local seconds = tonumber(call('TIME')[1])
    before, marks = string.match(before, '^(%d+)(.*)$')
    marks = string.gsub(marks, ' [^ ]+@(%d+)', function(expiry) return tonumber(expiry) <= seconds and '' or nil end)
  end
  if before + block > last or marks ~= '' then
    last = math.max(before + block, last)
    call('SET', fence, string.format('%.0f', last) .. marks, 'PX', fence_ttl)
  end
  return last
end

local function release(lock, fence, subscription, owner, token)
  local value = call('GET', lock)
  local notify = call('EXISTS', subscription)
  if value == owner then
    call('DEL', lock)
    if notify == 1 then
      redis.pcall('PUBLISH', lock, '1')
    end
  else
    local counter = token and call('GET', fence)
    if token and (value or counter and tonumber(string.match(counter, '^%d+')) > tonumber(token)) then
      return {1, notify}
    end
  end
  if notify == 1 then
    return {0, 1}
  end
  return 0
end

local function renew(lock, fence, owner, ttl, fence_ttl, token)
  if call('GET', lock) ~= owner then
    return 1
  end
  local counter, marks = call('GET', fence) or '0', nil
  if counter ~= token then
    counter, marks = string.match(counter, '^(%d+)(.*)$')
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
