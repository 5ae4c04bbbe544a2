-- acquire_fenced.lua: take a fenced lock, or enter it once more.
--
-- KEYS[1]  lock     hash: owner -> number of holds; absent = free
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  KEYS[2]  nothing is voided
-- KEYS[4]  token    integer without expiry: the last token that was given; absent: none was
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  count    the number of holds that the owner then has, this one included;
--                   nil: 1
-- ARGV[4]  known    the token of the owner's holds; nil, 0: none of them is fenced
-- ARGV[5]  copy     see marker.lua. '2' says too that the owner may still be in from a
--                   hold that is over
--
-- Returns  -2 * token      granted, and it was free: the owner has one hold, whatever
--                          count says
--          -2 * token - 1  granted, and the owner was in it: it has count holds
--          3, 4, 10 + n    see acquire.lua
--          5  free or the owner's, but KEYS[4] holds no token that could grow; nothing
--             was written
-- Writes   KEYS[1], whose time to live is never shortened, and KEYS[4], which never
--          falls      Publishes  nothing
-- Repeat   safe: the count is absolute. A copy that finds the owner in by the work of
--          an earlier one reads the token; where that can't be seen, because the owner
--          was in before without a token, the first copy marks its answer
local lock, token, owner, lease, count = KEYS[1], KEYS[4], ARGV[1], ARGV[2], ARGV[3] or '1'
local known, copy = tonumber(ARGV[4] or '0'), ARGV[5]

local free = redis.call('EXISTS', lock) == 0
local ttl = -1
if not free then
  local entered = redis.call('HEXISTS', lock, owner) == 1
  if redis.call('HLEN', lock) ~= 1 then
    return answer(4, copy)
  end
  ttl = redis.call('PTTL', lock)
  if not entered then
    return answer(ttl < 0 and 3 or 10 + ttl, copy)
  end
end

local max = 4503599627370495 -- 2^52 - 1; see fenced.go
local last = redis.pcall('GET', token) -- pcall: a key of another type
if last == false then
  last = '0'
elseif type(last) ~= 'string' or not (last == '0' or string.find(last, '^[1-9]%d*$')) then
  return answer(5, copy)
end
last = tonumber(last)
local read = not free and copy == '1' and count == '1' and last > 0 -- by an earlier copy
if last > max or last == max and not read and (free or known == 0) then
  return answer(5, copy)
end

if free then
  redis.call('HSET', lock, owner, 1)
  redis.call('PEXPIRE', lock, lease)
  redis.call('INCR', token)
  -- Holds were lost: a further copy, which finds the owner in, must say so too.
  return answer(-2 * (last + 1), copy or count ~= '1')
end

redis.call('HSET', lock, owner, count)
if ttl >= 0 and ttl < tonumber(lease) then
  redis.call('PEXPIRE', lock, lease)
end
if known > 0 then
  if last < known then -- the key is gone, or older than the lock's
    redis.call('SET', token, ARGV[4])
  end
  return answer(-2 * known - 1, copy)
end
if read then
  return answer(-2 * last - 1, copy)
end
redis.call('INCR', token)
return answer(-2 * (last + 1) - 1, copy or '2')
