-- expire.lua: have a semaphore go after some time.
--
-- KEYS[1]  free     string: number of free permits
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  permits  sorted set of an expirable one; nil: a plain semaphore
-- ARGV[1]  ttl      integer > 0, milliseconds
-- ARGV[2]  copy     '2': a late copy must not undo a later change
--
-- Returns  1  done
--          0  KEYS[1] doesn't exist; nothing was written
-- Writes   the expiry of KEYS[1] and KEYS[4]      Publishes  nothing
-- Repeat   safe: every copy leaves its marker, and changes nothing if it stands
local free, permits, ttl, copy = KEYS[1], KEYS[4], ARGV[1], ARGV[2]

local value = redis.call('GET', free)
if not number(value) then
  return foreign
end
if not value then
  return answer(0, copy)
end
redis.call('PEXPIRE', free, ttl)
if permits then
  redis.call('PEXPIRE', permits, ttl)
end
return answer(1, copy)
