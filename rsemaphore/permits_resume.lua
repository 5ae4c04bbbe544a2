-- permits_resume.lua: pass a permit from one id to another, so that who knew it
-- by the old one can't have it too.
--
-- KEYS[1]  free     see expired.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   see marker.lua
-- KEYS[4]  permits  see expired.lua
-- ARGV[1]  from     id by which it is known
-- ARGV[2]  to       id by which it is to be known, once
-- ARGV[3]  lease    integer > 0, milliseconds
-- ARGV[4]  copy     see marker.lua
--
-- Returns  1  passed on
--          0  from is unknown or has expired; nothing was written
-- Writes   KEYS[4]; a lease is never shortened, but one without end is ended
-- Publishes  nothing
-- Repeat   safe: a further copy finds that to is there. A first copy doesn't take
--          that for its own work, so that a handle works once
local from, to, lease, copy = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local at = lives(from)
if not at then
  return answer(copy and lives(to) and 1 or 0, copy)
end
if at >= 922337203685477 or at < now + lease then
  at = now + lease
end
expire_at(to, at) -- before ZREM: an empty set would go, and its expiry with it
redis.call('ZREM', permits, from)
return answer(1, copy)
