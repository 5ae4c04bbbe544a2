-- permits_acquire.lua: take permits that expire, all or none.
--
-- KEYS[1]  free     see expired.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  permits  see expired.lua
-- ARGV[1]  n        integer > 0, how many; at most 10000
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  channel  told that expired ones are free, if some are left
-- ARGV[4..3+n]      ids, which nobody else has
-- ARGV[4+n] copy    see marker.lua
--
-- Returns  1  granted
--          2  refused: it was never set, so that none are free
--          16 + 16384 * (ms + 1) + m  refused: m < n are free; in ms more of them will
--          have expired, so that there are n; ms = -1: nobody knows when
--          0  the request was undone before
-- Writes   KEYS[1], KEYS[4]      Publishes  the number of free permits, if some had expired
-- Repeat   safe: a further copy finds its ids in KEYS[4]
local n, lease, channel = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local copy = ARGV[4 + n]

if copy and lives(ARGV[4]) then
  return answer(1, copy)
end

local left = free
local reply = 1
if free >= n then
  left = free - n
  local ttl = redis.call('PTTL', KEYS[1])
  collect()
  redis.call('DECRBY', KEYS[1], ARGV[1])
  for i = 4, 3 + n do
    expire_at(ARGV[i], now + lease)
  end
  if ttl >= 0 then
    redis.call('PEXPIRE', permits, ttl)
  end
else
  -- The last of those that have to expire. Some may have already, in front of it.
  local wait = -1
  local rank = string.format('%.0f', expired + n - free - 1)
  local last = value and redis.call('ZRANGE', permits, rank, rank, 'WITHSCORES') or {}
  if last[2] and tonumber(last[2]) < 922337203685477 then
    wait = math.min(tonumber(last[2]) - now, 137438953472) -- so that the reply is exact
  end
  collect()
  reply = value and 16 + 16384 * (wait + 1) + math.max(free, 0) or 2
end
if expired > 0 and left > 0 then
  publish(channel, left)
end
return answer(reply, copy)
