-- await.lua: look whether a latch is open, or has been since the first look.
--
-- KEYS[1]  latch    string: the count; absent = 0 = open
-- KEYS[2]  opened   private key: when the latch was opened last; see countdown.lua
-- ARGV[1]  seen     what the first look found in KEYS[2], 0 for nothing; nil: this
--                   is the first look
--
-- Returns  0  it is open, or was opened after the first look
--          1  the key holds a string that is no count
--          10 + n  it is closed; n is what stands in KEYS[2], 0 for nothing
-- Writes   nothing      Publishes  nothing
-- Repeat   safe: it changes nothing
local count, opened, seen = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), ARGV[1]

if not count then
  return 0
end
if not string.find(count, '^%-?%d+$') then
  return 1
end
if tonumber(count) <= 0 then
  return 0
end
-- Its absence says nothing: it has a time to live.
if seen and opened and opened ~= seen then
  return 0
end
return 10 + tonumber(opened or 0)
