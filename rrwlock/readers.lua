-- readers.lua: opens every script of the read-write lock: who reads, and who waits.
--
-- KEYS[1]  lock     hash: mode -> read | write, owner -> number of read holds,
--                   <owner>:write -> number of write holds; absent = free. Read hold i of
--                   an owner has a key of its own, whose time to live is its lease; an owner
--                   none of whose keys is left reads no more, whatever the hash says
-- KEYS[4]  writers  sorted set: owner that waits to write -> ms until which that counts
-- KEYS[5]  readers  sorted set: owner that waits to read -> the same; '' -> the end of
--                   the readers' turn
-- ARGV     of the script that follows
--
-- Returns  nothing: these are functions. The keys of read holds are named after
--          fields of the hash, so that they can't all stand in KEYS; their slot is the lock's
-- Writes   through stand() and turn(): KEYS[4] and KEYS[5]      Publishes  nothing
-- Repeat   see the script that follows
local forever = 3153600000000 -- a century: what has no expiry

-- modeOf answers read, write, free, or foreign for a hash that is no read-write lock.
local function modeOf(lock)
  local mode = redis.call('HGET', lock, 'mode')
  if mode == 'read' or mode == 'write' then
    return mode
  end
  return (mode or redis.call('EXISTS', lock) == 1) and 'foreign' or 'free'
end

-- keyOf is the key of an owner's read hold i.
local function keyOf(lock, owner, i)
  local start = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  return start .. ':' .. owner .. ':rwlock_timeout:' .. i
end

-- ttlOf is how long a key lives, -2 if it isn't there.
local function ttlOf(key)
  local ttl = redis.call('PTTL', key)
  return ttl == -1 and forever or ttl
end

-- life is how long the longest of an owner's n read holds lasts, -2 if none does.
-- No owner has ten thousand; a foreign hash may seem to.
local function life(lock, owner, n)
  local longest = -2
  for i = math.max(1, n - 9999), n do
    longest = math.max(longest, ttlOf(keyOf(lock, owner, i)))
  end
  return longest
end

-- census answers how long the longest read hold of all owners but one lasts (-2:
-- nobody reads), which fields are left from owners who read no more, and whether
-- there are fields that no lock has.
local function census(lock, except)
  local all = redis.call('HGETALL', lock)
  local longest, gone, strange = -2, {}, false
  for i = 1, #all, 2 do
    local field, n = all[i], tonumber(all[i + 1])
    if field ~= 'mode' and field ~= except then
      if not n or not string.find(field, ':', 1, true) then
        strange = true
      elseif string.sub(field, -6) ~= ':write' then
        local ttl = life(lock, field, n)
        longest = math.max(longest, ttl)
        if ttl == -2 then
          gone[#gone + 1] = field
        end
      end
    end
  end
  return longest, gone, strange
end

local function drop(lock, fields)
  for _, field in ipairs(fields) do
    redis.call('HDEL', lock, field)
  end
end

-- stretch gives a key that lives for ttl at least ms more.
local function stretch(key, ttl, ms)
  if ttl >= 0 and ttl < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- clock is the server's, in ms: all times are compared by it.
local function clock()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- stand notes that an owner waits, which counts for ms, and forgets whom to count no more.
local function stand(key, owner, now, ms)
  local ttl = redis.call('PTTL', key)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  redis.call('ZADD', key, now + ms, owner)
  if ttl < ms then
    redis.call('PEXPIRE', key, ms)
  end
end

-- turnOf is until when it is the turn of the readers that waited for a writer to go,
-- 0 if it isn't.
local function turnOf(readers, now)
  local turn = tonumber(redis.call('ZSCORE', readers, '') or 0)
  return turn > now and turn or 0
end

-- turn begins the readers' turn, if there are any that wait.
local function turn(readers, ms)
  local now = clock()
  if redis.call('ZCOUNT', readers, '(' .. now, '+inf') > 0 then
    stand(readers, '', now, ms)
  end
end

-- tell publishes, and answers whether it could. pcall: a user without rights to the
-- channel must still be able to unlock.
local function tell(channel, message)
  local told = redis.pcall('PUBLISH', channel, message)
  return not (type(told) == 'table' and told.err)
end
