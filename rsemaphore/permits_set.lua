-- permits_set.lua: set the total number of permits, while some may be in use.
--
-- KEYS[1]  free     see expired.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  permits  see expired.lua
-- ARGV[1]  n        integer >= 0, how many there are to be, those in use included
-- ARGV[2]  channel  told the number
-- ARGV[3]  copy     '2': a late copy must not undo a later change
--
-- Returns  1  done
--          2  done, but the notification was refused: waiters poll
-- Writes   KEYS[1], whose expiry stays, and may be negative then; KEYS[4] without
--          what has expired      Publishes  n, if anything changed
-- Repeat   safe: every copy leaves its marker, and changes nothing if it stands
local n, channel, copy = tonumber(ARGV[1]), ARGV[2], ARGV[3]

local used = redis.call('ZCARD', permits) - expired
collect()
local more = n - used - free
if value and more == 0 and expired == 0 then
  return answer(1, copy)
end
redis.call('INCRBY', KEYS[1], string.format('%.0f', more))
return answer(publish(channel, n) and 1 or 2, copy)
