-- multi_acquire.lua: take several locks of one slot, or enter them once more: all
-- of them or none.
--
-- KEYS[1]     lock     the first one; hash: owner -> number of holds; absent = free
-- KEYS[2]     marker   see marker.lua
-- KEYS[3]     marker   again: nothing is voided
-- KEYS[2+i]   lock     the i-th one, from the second on
-- ARGV[1]     owner    <client id>:<owner id>
-- ARGV[2]     lease    integer > 0, milliseconds
-- ARGV[2+i]   count    the number of holds that the owner then has of the i-th lock,
--                      this one included
-- ARGV[3+n]   copy     see marker.lua; n is the number of locks
--
-- Returns  1  granted, all of them
--          '<i>:<answer>'  not granted; nothing was written. The i-th lock said
--            3  somebody else has it, without expiry
--            4  the key is a hash, but no lock
--            7  the owner isn't in it, although count says that it was
--            6  the key holds another type
--            10 + n  somebody else has it for n more milliseconds
-- Writes   all locks; their time to live is never shortened      Publishes  nothing
-- Repeat   safe: the counts are absolute, so a further copy writes the same ones
local owner, lease = ARGV[1], ARGV[2]
local locks = {KEYS[1]}
for i = 4, #KEYS do
  locks[#locks + 1] = KEYS[i]
end
local copy = ARGV[#locks + 3]

local function refused(i, why)
  return answer(string.format('%d:%.0f', i, why), copy)
end

local ttls = {}
for i, lock in ipairs(locks) do
  local is = redis.call('TYPE', lock).ok
  if is == 'none' then
    if ARGV[i + 2] ~= '1' then
      return refused(i, 7)
    end
    ttls[i] = 0
  elseif is ~= 'hash' then
    return refused(i, 6)
  else
    local entered = redis.call('HEXISTS', lock, owner) == 1
    if redis.call('HLEN', lock) ~= 1 then
      return refused(i, 4)
    end
    ttls[i] = redis.call('PTTL', lock)
    if not entered then
      return refused(i, ttls[i] < 0 and 3 or 10 + ttls[i])
    end
  end
end

for i, lock in ipairs(locks) do
  redis.call('HSET', lock, owner, ARGV[i + 2])
  if ttls[i] >= 0 and ttls[i] < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
  end
end
return answer(1, copy)
