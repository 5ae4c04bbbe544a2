-- expired.lua: opens, behind number.lua, the scripts on permits that expire: it
-- reads how things stand, with what has expired counted as free.
--
-- KEYS[1]  free     string: number of free permits; absent = the semaphore isn't set
-- KEYS[4]  permits  sorted set: permit id, 16 bytes -> epoch ms at which it expires,
--                   922337203685477 = never
-- ARGV     that of the script that follows
--
-- Returns  foreign, if KEYS[1] holds no number of permits
-- Writes   through collect(): KEYS[4] without what has expired, KEYS[1] with as many
--          more, unless it is absent      Publishes  nothing by itself
-- Repeat   safe: what was moved back is gone from KEYS[4]
local permits = KEYS[4]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local value = redis.call('GET', KEYS[1])
local expired = redis.call('ZCOUNT', permits, '-inf', string.format('%.0f', now))
local free = number(value)
if not free then
  return foreign
end
if value then
  free = free + expired
end

-- lives answers when a permit expires, or nil if it is unknown or has expired.
local function lives(id)
  local score = tonumber(redis.call('ZSCORE', permits, id) or '')
  if score and score > now then
    return score
  end
end

local function collect()
  if expired > 0 then
    redis.call('ZREMRANGEBYSCORE', permits, '-inf', string.format('%.0f', now))
    if value then
      redis.call('INCRBY', KEYS[1], expired)
    end
  end
end

local function expire_at(id, at)
  redis.call('ZADD', permits, string.format('%.0f', at), id)
end
