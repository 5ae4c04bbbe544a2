-- permits_extend.lua: give a permit a longer lease.
--
-- KEYS[1]  free     see expired.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  permits  see expired.lua
-- ARGV[1]  id       the permit
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  channel  told that expired ones are free
-- ARGV[4]  copy     see marker.lua
--
-- Returns  1  it is there, for at least lease more
--          0  it is unknown or has expired
-- Writes   KEYS[4], and KEYS[1] if some have expired; a lease is never shortened
-- Publishes  the number of free permits, if some had expired
-- Repeat   safe: running it twice leaves what running it once leaves; late, it
--          finds its marker
local id, lease, channel, copy = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local at = lives(id)
collect()
if at and at < now + lease then
  expire_at(id, now + lease)
end
if value and expired > 0 then
  publish(channel, free)
end
return answer(at and 1 or 0, copy)
