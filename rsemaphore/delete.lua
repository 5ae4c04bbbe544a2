-- delete.lua: remove a semaphore.
--
-- KEYS[1]  free     string: number of free permits
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  permits  sorted set of an expirable one; nil: a plain semaphore
-- ARGV[1]  copy     '2': a late copy must not remove what was set later
--
-- Returns  1  removed
--          0  there was none
-- Writes   KEYS[1], KEYS[4]      Publishes  nothing
-- Repeat   safe: every copy leaves its marker, and changes nothing if it stands
local free, permits, copy = KEYS[1], KEYS[4], ARGV[1]

local value = redis.call('GET', free)
if not number(value) then
  return foreign
end
local there = value and true
if permits then
  there = redis.call('ZCARD', permits) > 0 or there
  redis.call('DEL', permits)
end
redis.call('DEL', free)
return answer(there and 1 or 0, copy)
