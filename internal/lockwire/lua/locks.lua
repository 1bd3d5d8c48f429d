-- The locks of keys: the only place where a lock is taken, extended, given back or taken away (docs/design.md, 3.2 to 3.4,
-- 3.7, 3.10 and 3.11). A script has those functions before it that it names, and no others: see Compose of package rediswire.
-- They must be atomic: no one else may take a lock between the look at it and what follows from that.
--
-- keys has, from at to last, for each key: its lock, its fence counter, its subscription. A key has a position, from 1. What
-- a function refuses by itself is its reply, {err = text}, as redis.pcall returns it.
--
-- A fence counter may have marks of abandoned owners behind it: "counter id@expiry id@expiry ...", where id is the beginning
-- of the owner value and expiry is in seconds. acquire reads the counter anyway. The newest 256 are kept.

-- plain(failure) returns an error as Redis sends it: without the position that those of Redis before 7 have.
local function plain(failure)
  failure = string.gsub(failure, '^[@=][^:]*: ?%-?%d+: %-?', '')
  return string.find(failure, '^%u+ ') and failure or 'ERR ' .. failure -- an error of the script itself
end

-- count(fence, its value) returns the number of a fence counter and the marks behind it that have not expired; or nil and what
-- is to be replied.
local function count(fence, value)
  local number, marks = string.match(value, '^(%d+)(.*)$')
  if not number then
    return nil, redis.error_reply('FOREIGN no fence counter has the value of ' .. fence)
  elseif marks ~= '' then
    local now = tonumber(redis.call('TIME')[1])
    marks = string.gsub(marks, ' [^ ]+@(%d+)', function(expiry) return tonumber(expiry) <= now and '' or nil end)
  end
  return number, marks
end

-- marked(marks, id, for how long (s)) returns the newest of the marks with one more, unless it is there.
local function marked(marks, id, lateness)
  if string.find(marks, ' ' .. id .. '@', 1, true) then
    return marks
  end
  local _, more = string.gsub(marks, ' ', '')
  if more >= 256 then
    marks = string.match(marks, '^ [^ ]+(.*)$')
  end
  return marks .. ' ' .. id .. '@' .. string.format('%.0f', redis.call('TIME')[1] + lateness)
end

-- ask() returns the time (us) by this server's clock: one for all of a script.
local now, clock = nil, nil -- as a number and as it is written, once a call has asked
local function ask()
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    clock = string.format('%d', now)
  end
  return now
end

-- acquire(keys, at, last, owner value, TTL (ms), FenceTTL (ms), proposal, notify (ms), block) takes every key for one owner, or
-- none. A fence counter rises only together with its grant. The last three have defaults:
--   proposal  for the last token of the block (us); 0 for this server's clock; negative for that clock and a block above the
--             absolute value, the largest token that this caller has had: a failover may have set the clock back
--   notify    how long a refused caller subscribes to the release; 0 for not
--   block     size of the block of tokens; 1
-- Returns the counter of the key when granted, for several keys a list of them: the last token of the reserved block. So also
-- when this owner holds the keys already: the client has repeated a call whose reply was lost. When a key is held, it returns
-- {0, its position, its value, its remaining time (ms), its counter}.
--
-- A grant takes about 5.7 us of the server's time with its clock, and 4.6 us with a proposal. SET with GET saves a call,
-- because the clock is nearly always ahead of the counter.
local function acquire(keys, at, last, owner, ttl, fence_ttl, proposal, notify, block)
  local call = redis.call
  local mine = nil -- keys that this owner has had before the call
  for i = at, last, 3 do
    if not call('SET', keys[i], owner, 'NX', 'PX', ttl) then
      local value = redis.pcall('GET', keys[i])
      if value ~= owner then
        for j = at, last, 3 do
          -- taken just now, or when this call was sent before
          if j < i or j > i and redis.pcall('GET', keys[j]) == owner then
            call('DEL', keys[j])
          end
        end
        if type(value) == 'table' then -- the lock has another type
          return value
        end
        notify = tonumber(notify or 0)
        if notify > 0 and notify > call('PTTL', keys[i + 2]) then -- another's may last longer
          call('SET', keys[i + 2], '1', 'PX', notify)
        end
        return {0, (i - at) / 3 + 1, value, call('PTTL', keys[i]), call('GET', keys[i + 1]) or '0'}
      end
      mine = mine or {}
      mine[i] = true
    end
  end

  block = block or 1
  local top, text = tonumber(proposal or 0), proposal
  if top <= 0 then
    ask()
    if block == 1 and -top < now then
      top, text = now, clock
    else
      top = math.max(now - 1, -top) + block
      text = string.format('%.0f', top)
    end
  end
  local counters, refusal = last - at > 3 and {} or nil, nil
  for i = at, last, 3 do
    local fence, granted = keys[i + 1], top
    if mine and mine[i] then
      granted = tonumber(string.match(call('GET', fence) or '0', '^%d+'))
    else
      local before, marks = redis.pcall('SET', fence, text, 'PX', fence_ttl, 'GET') or 0, ''
      local number = tonumber(before)
      if not number then
        if type(before) == 'table' then -- an error
          refusal = before
        elseif string.find(before, ' ' .. string.sub(owner, 1, 16) .. '@', 1, true) then
          call('SET', fence, before, 'PX', fence_ttl)
          refusal = redis.error_reply('GIVENUP the call came after its owner had given the keys up')
        else
          number, marks = count(fence, before)
          if not number then
            call('SET', fence, before)
            refusal = marks
          end
        end
      end
      if refusal then
        for j = at, last, 3 do
          call('DEL', keys[j])
        end
        return refusal
      elseif number + block > top or marks ~= '' then
        granted = math.max(number + block, top)
        call('SET', fence, string.format('%.0f', granted) .. marks, 'PX', fence_ttl)
      end
    end
    if not counters then
      return granted
    end
    counters[#counters + 1] = granted
  end
  return counters
end

-- taken(value, fence, token) returns whether a lock with this value belongs to another owner, or has since the grant of a
-- token. A lock that is gone while no later token was given is no loss: it has expired. A lock or a counter of another Redis
-- type counts as another owner's.
local function taken(value, fence, token)
  local counter = fence and redis.pcall('GET', fence)
  return value or type(counter) == 'table' or counter and tonumber(string.match(counter, '^%d+') or 0) > tonumber(token)
end

-- release(keys, at, last, owner value, the token of each key, none when the attempt did not learn them...) deletes the locks
-- that still belong to one owner, and notifies subscribers. Fence counters stay; they expire. The channel is the name of the
-- lock. A notification is a hint: a user who may not publish, the default since Redis 7, releases the lock all the same.
--
-- A key whose slot moves to another server of a Redis Cluster comes alone, as its lock: meanwhile both servers refuse a script
-- of several keys, unless all of these are on one of them. Subscriptions are unknown then, so it always notifies.
--
-- Returns {position of the first key that another owner has had since, or 0; number of keys with a subscription}, or 0 for
-- {0, 0}, which is nearly always. The position proves nothing after an unanswered release: that one may have released the
-- key, and another owner has taken it since. Subscriptions stay: a parked caller renews its own, and an outdated one costs
-- only a look.
local function release(keys, at, last, owner, ...)
  local call = redis.call
  local lost, subscribed, position = 0, 0, 0
  for i = at, last, 3 do
    position = position + 1
    local lock, subscription = keys[i], keys[i + 2]
    local value = redis.pcall('GET', lock)
    local notify = not subscription or call('EXISTS', subscription) == 1
    subscribed = subscribed + (notify and 1 or 0)
    if value == owner then
      call('DEL', lock)
      if notify then
        redis.pcall('PUBLISH', lock, '1')
      end
    elseif lost == 0 then
      local token = select(position, ...)
      if token and taken(value, keys[i + 1], token) then
        lost = position
      end
    end
  end
  if lost == 0 and subscribed == 0 then
    return 0
  end
  return {lost, subscribed}
end

-- renew(keys, at, last, owner value, TTL (ms), FenceTTL (ms), the token of each key...) extends every key of one owner, or
-- none: token commit, extension and detection of a loss in one.
--
-- A key whose slot moves comes as its lock alone, as in release. Its counter needs no look, because it does not rise while the
-- lock is this owner's, and no extension, because its TTL is longer than MaxHold.
--
-- PEXPIRE comes first: a Redis that is out of memory refuses a script at its first SET, unless it has written before.
--
-- Returns 0 when all are extended, else the position of the first lost key; then nothing has changed.
local function renew(keys, at, last, owner, ttl, fence_ttl, ...)
  local call = redis.call
  local changed, position = nil, 0 -- the counters that are to be written
  for i = at, last, 3 do
    position = position + 1
    if call('GET', keys[i]) ~= owner then
      return position
    end
    local fence, token = keys[i + 1], (select(position, ...))
    local value = fence and (call('GET', fence) or '0')
    if value and value ~= token then
      local number, marks = count(fence, value)
      if not number then
        return marks
      elseif tonumber(number) > tonumber(token) then
        return position
      end
      changed = changed or {}
      changed[i] = token .. marks
    end
  end
  for i = at, last, 3 do
    call('PEXPIRE', keys[i], ttl)
    if changed and changed[i] then
      call('SET', keys[i + 1], changed[i], 'PX', fence_ttl)
    elseif keys[i + 1] then
      call('PEXPIRE', keys[i + 1], fence_ttl) -- nearly always
    end
  end
  return 0
end

-- abandon(keys, at, last, owner value, how long the owner is refused (s), FenceTTL (ms), 1 when several acquire calls were
-- sent, 1 when this call was sent before) gives back an unanswered acquire call, which may have been granted or refused, or
-- may yet arrive. It deletes the locks that the call has taken. When there are none, or when the owner has sent several such
-- calls, so that they may be those of another one, it marks the owner as abandoned, and acquire refuses it: a call between
-- the look and the mark would be granted to no one. Values of other programs stay.
--
-- Returns what release does: 0, or {0, number of subscriptions to the locks that it, or an earlier copy, has deleted}.
local function abandon(keys, at, last, owner, lateness, fence_ttl, several, repeated)
  local call = redis.call
  local subscribed, found = 0, false
  for i = at, last, 3 do
    local deleted = redis.pcall('GET', keys[i]) == owner
    if deleted then
      found = true
      call('DEL', keys[i])
    end
    if (deleted or repeated == '1') and call('EXISTS', keys[i + 2]) == 1 then
      subscribed = subscribed + 1
      redis.pcall('PUBLISH', keys[i], '1')
    end
  end
  if not found or several == '1' then
    local most = string.format('%.0f', math.max(tonumber(fence_ttl), lateness * 1000))
    for i = at + 1, last, 3 do
      local value = redis.pcall('GET', keys[i]) or '0'
      local number, marks = count(keys[i], type(value) == 'string' and value or '')
      local more = number and marked(marks, string.sub(owner, 1, 16), lateness)
      if number and more ~= marks then
        call('SET', keys[i], number .. more, 'PX', most)
      end
    end
  end
  return subscribed > 0 and {0, subscribed} or 0
end

-- depose(keys, owner value, TTL (ms), FenceTTL (ms), proposal, name of the deposed owner, its mark, or nothing; what it is told,
-- lifetime of the record (ms), how long its late calls are refused (s), channel) takes a lock away from its owner, for the
-- owner of a Depose, as if it had expired: the key must not be free in between, or the next holder could come before the
-- resource refuses this one.
--
-- An owner is named by the first 16 digits of the SHA-1 of its value. The fourth of the keys is the record: it says by which
-- owner the lock was taken; a Depose that is repeated takes it from that one. The deposed owner is marked as given up
-- whatever the lock is: a late call of it must not get the key when it is free again.
--
-- Returns what acquire does.
local function depose(keys, owner, ttl, fence_ttl, proposal, expected, mark, notice, lifetime, lateness, channel)
  local call, lock, fence, record = redis.call, keys[1], keys[2], keys[4]
  local value = call('GET', lock)
  if value ~= owner then
    local number, marks = count(fence, call('GET', fence) or '0')
    if not number then
      return marks
    elseif mark ~= '' then
      marks = marked(marks, mark, lateness)
    end
    local left = call('PTTL', fence) -- the holders of the key may keep it for longer
    if left > tonumber(fence_ttl) then
      fence_ttl = string.format('%.0f', left)
    end
    local name = value and string.sub(redis.sha1hex(value), 1, 16)
    local another = name and name ~= expected and name ~= string.sub(call('GET', record) or '', 1, 16)
    call('SET', fence, number .. marks, 'PX', fence_ttl)
    if not another then
      call('DEL', lock)
      call('SET', record, string.sub(redis.sha1hex(owner), 1, 16) .. notice, 'PX', lifetime)
      redis.pcall('PUBLISH', channel, expected)
    end
  end
  return acquire(keys, 1, 3, owner, ttl, fence_ttl, proposal)
end

-- snapshot(keys) reads the locks and fence counters of an expired lease. It is a script because go-redis may send a plain MGET to
-- a replica, which is behind.
local function snapshot(keys)
  return redis.call('MGET', unpack(keys))
end
