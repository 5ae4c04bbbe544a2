-- set.lua: write a value if no newer holder has.
--
-- KEYS[1]  value   string
-- KEYS[2]  fence   integer: the largest token that has written or claimed KEYS[1]
-- ARGV[1]  token   integer from 1 to 2^52 - 1
-- ARGV[2]  keep    life of the fence from now, milliseconds; 0: no end
-- ARGV[3]  new     the value; nil: KEYS[1] is left alone
-- ARGV[4]  ttl     its life, milliseconds; 0: no end
--
-- Returns  0   done: ARGV[1] is the largest token seen
--          -1  KEYS[1] is no string; nothing was written
--          -2  KEYS[2] is no token; nothing was written
--          n   refused: n, which is larger than ARGV[1], was seen
-- Writes   KEYS[2], which never falls, and KEYS[1]
-- Repeat   safe as long as the holder hasn't written something else since: a late
--          copy finds an equal token, and one after a newer holder a larger one
local value, fence, token, keep, new, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local seen = redis.pcall('GET', fence) -- pcall: a key of another type
if seen == false then
  seen = '0'
elseif type(seen) ~= 'string' or not string.find(seen, '^%d+$') or #seen > 16 then
  return -2
end
if tonumber(seen) > tonumber(token) then
  return tonumber(seen)
end
local kind = redis.call('TYPE', value)
if type(kind) == 'table' then
  kind = kind.ok
end
if kind ~= 'string' and kind ~= 'none' then
  return -1
end

if keep == '0' then
  redis.call('SET', fence, token)
else
  redis.call('SET', fence, token, 'PX', keep)
end
if new and ttl == '0' then
  redis.call('SET', value, new)
elseif new then
  redis.call('SET', value, new, 'PX', ttl)
end
return 0
