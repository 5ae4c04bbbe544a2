-- delete.lua: remove a limiter, with its windows of all clients and of this one.
--
-- KEYS      see window.lua; KEYS[2] marker, KEYS[3] voided: see marker.lua
-- ARGV[1]   copy     '2': a late copy must not remove what was set later
--
-- Returns   1  removed
--           0  no rate was set
-- Writes    KEYS[1], value and permits      Publishes  nothing
-- Repeat    safe: a further copy finds the marker, and removes nothing
local n = #KEYS
redis.call('DEL', limiter, KEYS[n - 3], KEYS[n - 2], KEYS[n - 1], KEYS[n])
return answer(rate and 1 or 0, ARGV[1])
