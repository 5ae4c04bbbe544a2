-- countdown.lua: take one off a latch's count.
--
-- KEYS[1]  latch    string: the count; absent = 0 = open
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   none; see marker.lua
-- KEYS[4]  opened   private key: when the latch was opened last, microseconds of the
--                   server's clock. Who began to wait before that needn't wait on,
--                   even if the latch has been set again since
-- ARGV[1]  channel  told when the count reaches zero
-- ARGV[2]  copy     '2': how often it was counted down can't be read off the state
--
-- Returns  1  counted down, and some are left
--          2  counted down to zero
--          3  counted down to zero, but the notification was refused: waiters poll
--          0  it was open; nothing was written
--          4  the key holds a string that is no count, or none that Redis can lower;
--             nothing was written
-- Writes   KEYS[1]; KEYS[4], for 70 s, at zero      Publishes  '0' at zero
-- Repeat   safe: a further copy finds the marker, and leaves the count alone
local latch, opened, channel, copy = KEYS[1], KEYS[4], ARGV[1], ARGV[2]

local count = redis.call('GET', latch)
if not count then
  return answer(0, copy)
end
if not string.find(count, '^%-?%d+$') or tonumber(count) >= 9223372036854775807 then
  return answer(4, copy)
end
if tonumber(count) > 1 then
  redis.call('DECR', latch)
  return answer(1, copy)
end

local time = redis.call('TIME')
redis.call('DEL', latch)
redis.call('SET', opened, time[1] .. string.format('%06d', time[2]), 'PX', 70000)
-- pcall: a user without rights to the channel must still be able to count down.
local told = redis.pcall('PUBLISH', channel, '0')
if type(told) == 'table' and told.err then
  return answer(3, copy)
end
return answer(2, copy)
