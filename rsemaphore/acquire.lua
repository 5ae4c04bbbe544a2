-- acquire.lua: take permits of a semaphore.
--
-- KEYS[1]  free     string: number of free permits, may be negative; absent = 0
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  n        integer > 0, how many
-- ARGV[2]  copy     see marker.lua
--
-- Returns  1  granted
--          2  refused: it was never set, so that none are free
--          10 + m  refused: only m are free; or m < 0, which are free
--          0  the request was undone before
-- Writes   KEYS[1] if granted      Publishes  nothing
-- Repeat   safe: who was granted permits can't be read off the number, so even
--          the first copy leaves its marker when it is granted
local free, n, copy = KEYS[1], ARGV[1], ARGV[2]

local value = redis.call('GET', free)
local has = number(value)
if not has then
  return foreign
end
if not value then
  return answer(2, copy)
end
if has < tonumber(n) then
  return answer(has < 0 and has or 10 + has, copy)
end
redis.call('DECRBY', free, n)
return answer(1, copy or '1')
