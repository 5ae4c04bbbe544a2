-- set.lua: write a value if no newer holder has.
--
-- KEYS[1]  value   string
-- KEYS[2]  fence   the largest token that has written or claimed KEYS[1]: an integer, and
--                  after a space its holder if that was given
-- ARGV[1]  token   integer from 1 to 2^52 - 1
-- ARGV[2]  keep    life of the fence from now, milliseconds; 0: no end
-- ARGV[3]  holder  who has the token; empty: it isn't compared
-- ARGV[4]  new     the value; nil: KEYS[1] is left alone
-- ARGV[5]  ttl     its life, milliseconds; 0: no end
--
-- Returns  0   done: ARGV[1] is the largest token seen
--          -1  KEYS[1] is no string; nothing was written
--          -2  KEYS[2] is no token; nothing was written
--          n   refused: n, which is larger than ARGV[1], was seen, or is equal and was
--              seen from another holder
-- Writes   KEYS[2], which never falls, and KEYS[1]
-- Repeat   safe as long as the holder hasn't written something else since: a late
--          copy finds an equal token, and one after a newer holder a larger one
local value, fence, token, keep, holder = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local new, ttl = ARGV[4], ARGV[5]

local seen, whose = redis.pcall('GET', fence), '' -- pcall: a key of another type
if seen == false then
  seen = '0'
elseif type(seen) ~= 'string' then
  return -2
else
  local digits, rest = string.match(seen, '^(%d+)(.*)$')
  if not digits or #digits > 16 or (rest ~= '' and string.sub(rest, 1, 1) ~= ' ') then
    return -2
  end
  seen, whose = digits, string.sub(rest, 2)
end
local equal = tonumber(seen) == tonumber(token)
if tonumber(seen) > tonumber(token) or (equal and holder ~= '' and whose ~= '' and whose ~= holder) then
  return tonumber(seen)
end
local kind = redis.call('TYPE', value)
if type(kind) == 'table' then
  kind = kind.ok
end
if kind ~= 'string' and kind ~= 'none' then
  return -1
end

local mark = token
if holder ~= '' then
  mark = token .. ' ' .. holder
elseif equal and whose ~= '' then
  mark = token .. ' ' .. whose
end
if keep == '0' then
  redis.call('SET', fence, mark)
else
  redis.call('SET', fence, mark, 'PX', keep)
end
if new and ttl == '0' then
  redis.call('SET', value, new)
elseif new then
  redis.call('SET', value, new, 'PX', ttl)
end
return 0
