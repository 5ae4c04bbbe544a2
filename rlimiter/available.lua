-- available.lua: count the permits that could be granted now.
--
-- KEYS      see window.lua
-- ARGV      none
--
-- Returns   their number, 0 or more
--           -1  no rate is set
-- Writes    nothing      Publishes  nothing
-- Repeat    safe: it changes nothing
if not rate then
  return -1
end
local _, _, free = look()
return math.max(free, 0)
