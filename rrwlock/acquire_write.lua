-- acquire_write.lua: write, or write once more.
--
-- KEYS[1]  lock     see readers.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  writers  see readers.lua
-- KEYS[5]  readers  see readers.lua
-- ARGV[1]  field    <client id>:<owner id>:write
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  waits    milliseconds for which it counts that the owner waits; 0: it doesn't
-- ARGV[4]  count    the number of write holds that the owner then has, this one
--                   included; nil: 1
-- ARGV[5]  copy     see marker.lua
--
-- Returns  1  granted, and it was free: the owner has one write hold, whatever count says
--          2  granted, and the owner was writing: it has count write holds
--          3  refused: somebody else writes, without expiry
--          4  the key is a hash, but no read-write lock; nothing was written
--          6  refused: the owner reads, and would wait for itself
--          10 + n  refused for n more milliseconds: somebody else has it, or it is
--             the turn of readers that waited for the last writer
-- Writes   KEYS[1], whose time to live is never shortened; KEYS[4], KEYS[5]
-- Publishes  nothing
-- Repeat   safe: the count is absolute, so a further copy writes the same one
local lock, writers, readers = KEYS[1], KEYS[4], KEYS[5]
local field, lease, waits, copy = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5]
local count = ARGV[4] or '1'
local owner = string.sub(field, 1, -7)

local mode = modeOf(lock)
if mode == 'foreign' then
  return answer(4, copy)
end

local function refuse(reply)
  if waits > 0 then
    stand(writers, owner, clock(), waits)
  end
  return answer(reply, copy)
end

if mode == 'write' then
  local ttl = redis.call('PTTL', lock)
  if redis.call('HEXISTS', lock, field) == 0 then
    return refuse(ttl < 0 and 3 or 10 + ttl)
  end
  redis.call('HSET', lock, field, count)
  stretch(lock, ttl, lease)
  return answer(2, copy)
end

if mode == 'read' then
  local longest, _, strange = census(lock)
  if strange then
    return answer(4, copy)
  end
  if longest ~= -2 then
    local reads = tonumber(redis.call('HGET', lock, owner) or 0)
    if life(lock, owner, reads) ~= -2 then
      return answer(6, copy)
    end
    return refuse(10 + longest)
  end
end

if redis.call('EXISTS', readers) == 1 then
  local now = clock()
  local ends = turnOf(readers, now)
  -- '' itself counts, too.
  if ends > 0 and redis.call('ZCOUNT', readers, '(' .. now, '+inf') > 1 then
    return refuse(10 + ends - now)
  end
  redis.call('ZREM', readers, '')
end
if mode == 'read' then
  redis.call('DEL', lock) -- what is left of readers that are gone
end
redis.call('HSET', lock, 'mode', 'write', field, 1)
redis.call('PEXPIRE', lock, lease)
if waits > 0 then
  redis.call('ZREM', writers, owner)
end
-- Holds were lost: a further copy, which finds the owner in, must say so too.
return answer(1, copy or count ~= '1')
