-- set.lua: give an open latch a count.
--
-- KEYS[1]  latch    string: the count; absent = 0 = open
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  count    integer >= 0
-- ARGV[2]  channel  told of the new count
-- ARGV[3]  copy     '2': who set a count can't be read off the state
--
-- Returns  1  set; a count of zero leaves the latch open
--          2  set, but the notification was refused
--          0  the latch is closed already; nothing was written
--          4  the key holds a string that is no count; nothing was written
-- Writes   KEYS[1]      Publishes  '1' if there is a count now
-- Repeat   safe: a further copy finds the marker, and doesn't close a latch that
--          has been counted down since
local latch, count, channel, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local present = redis.call('GET', latch)
if present and not string.find(present, '^%-?%d+$') then
  return answer(4, copy)
end
if present and tonumber(present) > 0 then
  return answer(0, copy)
end
if count == '0' then
  return answer(1, copy)
end

redis.call('SET', latch, count)
local told = redis.pcall('PUBLISH', channel, '1') -- pcall: see countdown.lua
if type(told) == 'table' and told.err then
  return answer(2, copy)
end
return answer(1, copy)
