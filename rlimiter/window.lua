-- window.lua: opens every script that looks into the window of a limiter.
--
-- KEYS[1]   limiter  hash: rate, interval (ms), type ('0' over all clients, '1' per
--                    client), keepAliveTime (ms, '0' = none); absent = no rate set
-- KEYS[#-3] value    string: permits left in the window; absent = not counted yet
-- KEYS[#-2] permits  sorted set: the grants. Score = ms when it was granted, member =
--                    0x10, 16 bytes of an id, the permits in 32 bits, low byte first
-- KEYS[#-1] and KEYS[#]  value and permits of this client, for type 1
-- ARGV      none
--
-- Returns   an error if KEYS[1] is a hash of something else
-- Repeat    safe: it reads and defines functions
local limiter, value, permits = KEYS[1], KEYS[#KEYS - 3], KEYS[#KEYS - 2]
local config = redis.call('HMGET', limiter, 'rate', 'interval', 'type', 'keepAliveTime')
local rate, interval = tonumber(config[1] or ''), tonumber(config[2] or '')
if not (rate and interval) and redis.call('EXISTS', limiter) == 1 then
  return redis.error_reply('WRONGTYPE holdfast: a hash that is no rate limiter')
end
if config[3] == '1' then
  value, permits = KEYS[#KEYS - 1], KEYS[#KEYS]
end

-- whole writes a number without exponent.
local function whole(n)
  return string.format('%.0f', n)
end

-- count is how many permits a member stands for.
local function count(member)
  local a, b, c, d = string.byte(member, -4, -1)
  return d and a + 256 * (b + 256 * (c + 256 * d)) or 0
end

local function sum(members)
  local n = 0
  for _, member in ipairs(members) do
    n = n + count(member)
  end
  return n
end

-- look answers what the window is at this moment:
-- edge     ms; grants before it have left the window. One at edge itself is an
--          interval old in whole ms, and may be younger by less than one
-- expired  how many grants have left, but still stand in the set
-- free     how many permits could be granted; below 0 after the rate was lowered
-- now      ms
local function look()
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local edge = now - interval
  local expired = redis.call('ZCOUNT', permits, '-inf', '(' .. whole(edge))
  local live = redis.call('ZCARD', permits) - expired
  if live == 0 then
    return edge, expired, rate, now -- whatever value says: nothing adds up over time
  end
  local free = tonumber(redis.call('GET', value) or '')
  if free and expired > 0 then
    free = free + sum(redis.call('ZRANGE', permits, 0, expired - 1))
  end
  -- More than can be, since each grant is of one permit at least: Redisson raises
  -- the value when permits are given back, and leaves the grants in the window.
  if not free or free > rate - live then
    free = rate - sum(redis.call('ZRANGEBYSCORE', permits, whole(edge), '+inf'))
  end
  return edge, expired, free, now
end

-- keep gives the window the limiter's time to live.
local function keep()
  local ttl = redis.call('PTTL', limiter)
  if ttl > 0 then
    redis.call('PEXPIRE', value, ttl)
    redis.call('PEXPIRE', permits, ttl)
  end
end
