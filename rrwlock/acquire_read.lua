-- acquire_read.lua: read, or read once more.
--
-- KEYS[1]  lock     see readers.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  writers  see readers.lua
-- KEYS[5]  readers  see readers.lua
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  waits    milliseconds for which it counts that the owner waits; 0: it doesn't
-- ARGV[4]  count    the number of read holds that the owner then has, this one included;
--                   nil: 1
-- ARGV[5]  copy     see marker.lua
--
-- Returns  1  granted, and the owner had no read hold: it has one, whatever count says
--          2  granted, and the owner had one: it has count of them
--          3  refused: somebody else writes, without expiry
--          4  the key is a hash, but no read-write lock; nothing was written
--          10 + n  refused for n more milliseconds: somebody else writes, or a writer
--             waits whom an owner that holds nothing lets in first
-- Writes   KEYS[1] and the key of this hold, neither of whose time to live is
--          shortened; KEYS[5]      Publishes  nothing
-- Repeat   safe: the count is absolute, so a further copy writes the same one
local lock, writers, readers = KEYS[1], KEYS[4], KEYS[5]
local owner, lease, waits, copy = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
local count = tonumber(ARGV[4] or 1)

local mode = modeOf(lock)
if mode == 'foreign' then
  return answer(4, copy)
end
local ttl, had, longest, writes = -2, 0, -2, false
if mode ~= 'free' then
  ttl = redis.call('PTTL', lock)
  had = tonumber(redis.call('HGET', lock, owner) or 0)
  longest = life(lock, owner, had)
  writes = mode == 'write' and redis.call('HEXISTS', lock, owner .. ':write') == 1
end

if mode == 'write' and not writes then
  if waits > 0 then
    -- No longer than the lock can last: a reader that dies with the writer
    -- shouldn't keep others out after both.
    stand(readers, owner, clock(), ttl < 0 and waits or math.min(waits, ttl + 1000))
  end
  return answer(ttl < 0 and 3 or 10 + ttl, copy)
end

local entered = longest ~= -2
if not entered and not writes and redis.call('EXISTS', writers) == 1 then
  local now = clock()
  local top = redis.call('ZREVRANGE', writers, 0, 0, 'WITHSCORES')
  local last, ends = tonumber(top[2] or 0), turnOf(readers, now)
  if last > now and (ends == 0 or not redis.call('ZSCORE', readers, owner)) then
    if ends > 0 then
      last = math.min(last, ends) -- it isn't its turn, but may be at the next
    elseif waits > 0 then
      stand(readers, owner, now, waits)
    end
    return answer(10 + last - now, copy)
  end
end

-- Where holds ran out, the count here may have fallen behind that in Redis. What
-- the keys above it protect, the last one does.
local i = entered and count or 1
local key = keyOf(lock, owner, i)
local need = had > i and math.max(lease, longest) or lease
local present = ttlOf(key)

if mode == 'free' then
  redis.call('HSET', lock, 'mode', 'read', owner, i)
  redis.call('PEXPIRE', lock, need)
else
  redis.call('HSET', lock, owner, i)
  stretch(lock, ttl, need)
end
if present < need then
  redis.call('SET', key, 1, 'PX', need)
end
for j = i + 1, had do
  redis.call('DEL', keyOf(lock, owner, j))
end
if waits > 0 and redis.call('ZREM', readers, owner) == 1 and redis.call('ZCARD', readers) == 1 then
  redis.call('ZREM', readers, '') -- the last of those whose turn it was
end
-- Holds were lost: a further copy, which finds the owner in, must say so too.
return answer(entered and 2 or 1, copy or not entered and count ~= 1)
