-- set.lua: set the number of permits of a semaphore that has none yet.
--
-- KEYS[1]  free     string: number of free permits; '0' counts as set
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  n        integer >= 0
-- ARGV[2]  channel  told the number
-- ARGV[3]  ttl      milliseconds after which the semaphore goes; '0': never
-- ARGV[4]  copy     '2': who set it can't be read off the number
--
-- Returns  1  set
--          2  set, but the notification was refused: waiters poll
--          0  it was set before; nothing was written
-- Writes   KEYS[1]      Publishes  the number
-- Repeat   safe: every copy leaves its marker, and changes nothing if it stands
local free, n, channel, ttl, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local value = redis.call('GET', free)
if not number(value) then
  return foreign
end
if value then
  return answer(0, copy)
end
if ttl == '0' then
  redis.call('SET', free, n)
else
  redis.call('SET', free, n, 'PX', ttl)
end
return answer(publish(channel, tonumber(n)) and 1 or 2, copy)
