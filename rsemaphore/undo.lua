-- undo.lua: take back what an acquisition was granted that nobody waits for.
--
-- KEYS[1]  free     string: number of free permits
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   marker of the acquisition; see marker.lua
-- ARGV[1]  n        integer > 0, how many it asked for
-- ARGV[2]  channel  told the new number
-- ARGV[3]  copy     see marker.lua
--
-- Returns  1  given back
--          2  given back, but the notification was refused: waiters poll
--          0  there was nothing to give back: it hadn't been granted, or the
--             semaphore is gone
-- Writes   KEYS[1]      Publishes  the new number of free permits if it changed
-- Repeat   safe: the first copy that runs voids the marker by which it knows that
--          the permits were granted
local free, voided, n, channel, copy = KEYS[1], KEYS[3], ARGV[1], ARGV[2], ARGV[3]

local granted = redis.call('GET', voided) == '1'
local value = redis.call('GET', free)
local has = number(value)
if not (granted and value and has) then
  return answer(0, copy)
end
redis.call('INCRBY', free, n)
return answer(publish(channel, has + tonumber(n)) and 1 or 2, copy)
