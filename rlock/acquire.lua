-- acquire.lua: take a lock, or enter it once more.
--
-- KEYS[1]  lock     hash: owner -> number of holds; absent = free
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  count    the number of holds that the owner then has, this one included;
--                   nil: 1
-- ARGV[4]  copy     see marker.lua
--
-- Returns  1  granted, and it was free: the owner has one hold, whatever count says
--          2  granted, and the owner was in it: it has count holds
--          3  refused: somebody else has it, without expiry
--          4  the key is a hash, but no lock; nothing was written
--          10 + n  refused: somebody else has it for n more milliseconds
-- Writes   KEYS[1]; its time to live is never shortened      Publishes  nothing
-- Repeat   safe: the count is absolute, so a further copy writes the same one
local lock, owner, lease, count, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3] or '1', ARGV[4]

-- The usual case, in three commands: a first copy, neither lock nor marker there.
if #ARGV == 2 and redis.call('EXISTS', lock, KEYS[2]) == 0 then
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, lease)
  return 1
end
-- marker.lua stands here.

if redis.call('EXISTS', lock) == 0 then
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, lease)
  -- Holds were lost: a further copy, which finds the owner in, must say so too.
  return answer(1, copy or count ~= '1')
end

-- A plain lock has one field. Two or more: a read-write lock, a rate limiter,
-- or a hash of somebody's own.
local entered = redis.call('HEXISTS', lock, owner) == 1
if redis.call('HLEN', lock) ~= 1 then
  return answer(4, copy)
end

local ttl = redis.call('PTTL', lock)
if not entered then
  return answer(ttl < 0 and 3 or 10 + ttl, copy)
end
redis.call('HSET', lock, owner, count)
if ttl >= 0 and ttl < tonumber(lease) then
  redis.call('PEXPIRE', lock, lease)
end
return answer(2, copy)
