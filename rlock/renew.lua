-- renew.lua: give held locks a fresh lease.
--
-- KEYS[i]    lock    hash: owner -> number of holds
-- ARGV[1]    lease   integer > 0, milliseconds
-- ARGV[i+1]  owner   who should hold KEYS[i]
--
-- Returns  for each lock  1  the owner holds it, for at least lease more
--                         0  it doesn't; nothing was written
-- Writes   the expiry of KEYS[i], which is never shortened      Publishes  nothing
-- Repeat   safe: running it twice leaves what running it once leaves. Late, it
--          can only give what this owner holds then a lease more
local lease = tonumber(ARGV[1])

local held = {}
for i, lock in ipairs(KEYS) do
  -- pcall: a key of another type is a lost hold, not a failure of the others.
  local entered = redis.pcall('HEXISTS', lock, ARGV[i + 1])
  held[i] = entered == 1 and redis.call('PTTL', lock) or false
end
for i, lock in ipairs(KEYS) do
  local ttl = held[i]
  if ttl and ttl >= 0 and ttl < lease then
    redis.call('PEXPIRE', lock, ARGV[1])
  end
  held[i] = ttl and 1 or 0
end
return held
