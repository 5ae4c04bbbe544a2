-- extend.lua: give one hold a longer lease.
--
-- KEYS[1]  lock     hash: owner -> number of holds
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  copy     see marker.lua
--
-- Returns  1  the owner holds it, for at least lease more
--          0  it doesn't; nothing was written
-- Writes   the expiry of KEYS[1], which is never shortened      Publishes  nothing
-- Repeat   safe: running it twice leaves what running it once leaves; late, it
--          finds its marker and doesn't stretch a later hold of the owner's
local lock, owner, lease, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

if redis.call('HEXISTS', lock, owner) == 0 then
  return answer(0, copy)
end
local ttl = redis.call('PTTL', lock)
if ttl >= 0 and ttl < tonumber(lease) then
  redis.call('PEXPIRE', lock, lease)
end
return answer(1, copy)
