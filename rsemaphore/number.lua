-- number.lua: opens, behind marker.lua, every script that reads a number of permits.
--
-- KEYS[1]  free     string: number of free permits; absent = 0
-- ARGV     that of the script that follows
--
-- Returns  nothing by itself: number() answers the number that a value of KEYS[1]
--          stands for, or nil if it stands for none that fits a Lua number;
--          foreign is the error of a script that found such a value
-- Writes   nothing      Publishes  nothing
-- Repeat   safe: it only reads its argument
local limit = 9007199254740991 -- 2^53 - 1: every number up to it is exact
local foreign = redis.error_reply('WRONGTYPE holdfast: a string that is no number of permits')

local function number(value)
  if not value then
    return 0
  end
  local n = tonumber(value)
  if value ~= '0' and not string.match(value, '^-?[1-9]%d*$') or n > limit or n < -limit then
    return nil
  end
  return n
end

-- publish tells waiters, and answers whether they could be told: a user without
-- rights to the channel must still be able to give permits back.
local function publish(channel, n)
  local told = redis.pcall('PUBLISH', channel, string.format('%.0f', n))
  return not (type(told) == 'table' and told.err)
end
