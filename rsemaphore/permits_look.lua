-- permits_look.lua: read how many permits there are, or how long one lasts.
--
-- KEYS[1]  free     string: number of free permits
-- KEYS[2]  permits  sorted set: permit id -> epoch ms at which it expires
-- ARGV[1]  id       a permit; nil: none
--
-- Returns  the value of KEYS[1], '' if it is absent; how many in KEYS[2] have expired;
--          how many are in use; how many ms the permit lasts: 0 if it is unknown or has
--          expired, -1 if it never expires
-- Writes   nothing      Publishes  nothing
-- Repeat   safe: it only reads
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local value = redis.call('GET', KEYS[1]) or ''
local expired = redis.call('ZCOUNT', KEYS[2], '-inf', string.format('%.0f', now))
local used = redis.call('ZCARD', KEYS[2]) - expired
local lasts = 0
if ARGV[1] then
  local score = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or '')
  if score and score >= 922337203685477 then
    lasts = -1
  elseif score and score > now then
    lasts = score - now
  end
end
return { value, expired, used, lasts }
