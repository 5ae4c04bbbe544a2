-- add.lua: raise or lower the number of free permits: release, and a change of the total.
--
-- KEYS[1]  free     string: number of free permits; absent = 0
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  n        integer, negative to take away
-- ARGV[2]  channel  told the new number
-- ARGV[3]  there    '1': only if KEYS[1] exists
-- ARGV[4]  copy     '2': that it ran can't be read off the number
--
-- Returns  1  done
--          2  done, but the notification was refused: waiters poll
--          0  KEYS[1] doesn't exist; nothing was written
--          3  the number would leave what a Lua number holds; nothing was written
-- Writes   KEYS[1], whose expiry stays      Publishes  the new number
-- Repeat   safe: every copy leaves its marker, and changes nothing if it stands
local free, n, channel, there, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local value = redis.call('GET', free)
local has = number(value)
if not has then
  return foreign
end
if there == '1' and not value then
  return answer(0, copy)
end
local new = has + tonumber(n)
if new > limit or new < -limit then
  return answer(3, copy)
end
redis.call('INCRBY', free, n)
return answer(publish(channel, new) and 1 or 2, copy)
