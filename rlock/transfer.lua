-- transfer.lua: pass a hold from one owner field to another.
--
-- KEYS[1]  lock     hash: owner -> number of holds
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   see marker.lua
-- ARGV[1]  from     field that holds it
-- ARGV[2]  to       field that is to hold it, once
-- ARGV[3]  lease    integer > 0, milliseconds
-- ARGV[4]  copy     see marker.lua
--
-- Returns  1  passed on
--          0  from doesn't hold it; the lock was left alone
-- Writes   KEYS[1]; its time to live is never shortened      Publishes  nothing
-- Repeat   safe: a further copy finds that to holds it already. A first copy
--          doesn't take that for its own work, so that a handle works once
local lock, from, to, lease, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('HEXISTS', lock, from) == 0 then
  if copy and redis.call('HEXISTS', lock, to) == 1 then
    return answer(1, copy)
  end
  return answer(0, copy)
end

local ttl = redis.call('PTTL', lock)
redis.call('HSET', lock, to, 1) -- before HDEL: an empty hash would go, and its expiry with it
redis.call('HDEL', lock, from)
if ttl >= 0 and ttl < tonumber(lease) then
  redis.call('PEXPIRE', lock, lease)
end
return answer(1, copy)
