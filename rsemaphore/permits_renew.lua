-- permits_renew.lua: give permits a fresh lease.
--
-- KEYS[i]    permits  sorted set: permit id -> epoch ms at which it expires
-- ARGV[1]    lease    integer > 0, milliseconds
-- ARGV[i+1]  id       a permit of KEYS[i]
--
-- Returns  for each id  1  it is there, for at least lease more
--                       0  it is unknown or has expired; nothing was written
-- Writes   KEYS[i]; a lease is never shortened      Publishes  nothing
-- Repeat   safe: running it twice leaves what running it once leaves. Late, it can
--          only give a permit that is there then a lease more
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local lease = tonumber(ARGV[1])

local ends = {}
for i, permits in ipairs(KEYS) do
  -- pcall: a key of another type is a lost permit, not a failure of the others.
  local score = redis.pcall('ZSCORE', permits, ARGV[i + 1])
  score = type(score) ~= 'table' and score and tonumber(score)
  ends[i] = score and score > now and score
end
for i, permits in ipairs(KEYS) do
  if ends[i] and ends[i] < now + lease then
    redis.call('ZADD', permits, string.format('%.0f', now + lease), ARGV[i + 1])
  end
  ends[i] = ends[i] and 1 or 0
end
return ends
