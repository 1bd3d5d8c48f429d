-- Takes and releases the lock of one key for one owner, as acquire.lua and release.lua of package locking do: a change
-- there is one here, and a test compares them. The functions are part of scripts that do more in the same call.

local call = redis.call
local now, clock = nil, nil -- of this server (us), as a number and as it is written

-- counterFor(proposal, block) returns the last token of a block for a proposal, as a number and as it is written.
-- Neighbours mostly make the same proposal.
local proposed, size, counter, written = nil, nil, nil, nil
local function counterFor(proposal, block)
  if proposal == proposed and block == size then
    return counter, written
  end
  proposed, size = proposal, block
  counter, written = tonumber(proposal or 0), proposal
  if counter <= 0 then
    if not now then
      local time = call('TIME')
      now = time[1] * 1000000 + time[2]
    end
    local floor = -counter
    if block == 1 and floor < now then
      clock = clock or string.format('%.0f', now)
      counter, written = now, clock
    else
      counter = math.max(now - 1, floor) + block
      written = string.format('%.0f', counter)
    end
  end
  return counter, written
end

local function acquire(lock, fence, subscription, owner, ttl, fence_ttl, proposal, notify, block)
  if not call('SET', lock, owner, 'NX', 'PX', ttl) then
    local value = redis.pcall('GET', lock)
    if value == owner then
      return tonumber(string.match(call('GET', fence) or '0', '^%d+'))
    end
    if type(value) == 'table' then -- the lock has another type
      error(value.err, 0)
    end
    notify = tonumber(notify or 0)
    if notify > 0 and notify > call('PTTL', subscription) then
      call('SET', subscription, '1', 'PX', notify)
    end
    return {0, 1, value, call('PTTL', lock), call('GET', fence) or '0'}
  end
  block = block or 1
  local last, text = counterFor(proposal, block)
  local before = redis.pcall('SET', fence, text, 'PX', fence_ttl, 'GET')
  if not before then
    return last
  end
  if type(before) == 'table' then -- an error
    call('DEL', lock)
    error(before.err, 0)
  end
  local number, marks = tonumber(before), ''
  if not number then
    if string.find(before, ' ' .. string.sub(owner, 1, 16) .. '@', 1, true) then
      call('SET', fence, before, 'PX', fence_ttl)
      call('DEL', lock)
      error('GIVENUP the call came after its owner had given the keys up', 0)
    end
    local seconds = tonumber(call('TIME')[1])
    number, marks = string.match(before, '^(%d+)(.*)$')
    if not number then
      call('SET', fence, before)
      call('DEL', lock)
      error('FOREIGN no fence counter has the value of ' .. fence, 0)
    end
    marks = string.gsub(marks, ' [^ ]+@(%d+)', function(expiry) return tonumber(expiry) <= seconds and '' or nil end)
  end
  if number + block > last or marks ~= '' then
    last = math.max(number + block, last)
    call('SET', fence, string.format('%.0f', last) .. marks, 'PX', fence_ttl)
  end
  return last
end

-- taken returns whether a lock with this value belongs to another owner, or has since the grant of a token.
local function taken(value, fence, token)
  local counter = redis.pcall('GET', fence)
  return value or type(counter) == 'table' or counter and tonumber(string.match(counter, '^%d+') or 0) > tonumber(token)
end

local function release(lock, fence, subscription, owner, token)
  local value = redis.pcall('GET', lock) -- an error if it has another type
  local notify = call('EXISTS', subscription)
  if value == owner then
    call('DEL', lock)
    if notify == 1 then
      redis.pcall('PUBLISH', lock, '1')
    end
  elseif token and taken(value, fence, token) then
    return {1, notify}
  end
  if notify == 1 then
    return {0, 1}
  end
  return 0
end
