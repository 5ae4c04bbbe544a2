-- delete.lua: open a latch whatever its count.
--
-- KEYS[1]  latch    string: the count; absent = 0 = open
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   none; see marker.lua
-- KEYS[4]  opened   see countdown.lua
-- ARGV[1]  channel  told that the latch is gone
-- ARGV[2]  copy     '2': which count was deleted can't be read off the state
--
-- Returns  1  deleted
--          2  deleted, but the notification was refused: waiters poll
--          0  there was none
--          4  the key holds a string that is no count; nothing was written
-- Writes   KEYS[1]; KEYS[4], for 70 s, if it was there      Publishes  '1', as Redisson
-- Repeat   safe: a further copy finds the marker, and leaves a later count alone
local latch, opened, channel, copy = KEYS[1], KEYS[4], ARGV[1], ARGV[2]

local count = redis.call('GET', latch)
if not count then
  return answer(0, copy)
end
if not string.find(count, '^%-?%d+$') then
  return answer(4, copy)
end

local time = redis.call('TIME')
redis.call('DEL', latch)
redis.call('SET', opened, time[1] .. string.format('%06d', time[2]), 'PX', 70000)
local told = redis.pcall('PUBLISH', channel, '1') -- pcall: see countdown.lua
if type(told) == 'table' and told.err then
  return answer(2, copy)
end
return answer(1, copy)
