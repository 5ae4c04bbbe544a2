-- drain.lua: take all free permits.
--
-- KEYS[1]  free     string: number of free permits; absent = 0
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  copy     '2': how many there were can't be read off the number later
--
-- Returns  how many there were: taken if positive; what was missing is forgiven
--          if negative
-- Writes   KEYS[1], to 0 if it exists; its expiry stays      Publishes  nothing
-- Repeat   safe: every copy leaves its marker, and changes nothing if it stands
local free, copy = KEYS[1], ARGV[1]

local has = number(redis.call('GET', free))
if not has then
  return foreign
end
if has ~= 0 then
  redis.call('INCRBY', free, string.format('%.0f', -has))
end
return answer(has, copy)
