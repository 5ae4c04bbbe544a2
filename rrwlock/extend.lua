-- extend.lua: give one hold a longer lease.
--
-- KEYS[1]  lock     see readers.lua
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  field    <client id>:<owner id>, with :write for a write hold
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  copy     see marker.lua
--
-- Returns  1  the owner holds it, for at least lease more
--          0  it doesn't; nothing was written
-- Writes   the expiry of KEYS[1] and, for a read hold, of that key of the owner's which
--          lives longest; neither is ever shortened      Publishes  nothing
-- Repeat   safe: running it twice leaves what running it once leaves; late, it
--          finds its marker and doesn't stretch a later hold of the owner's
local lock, field, lease, copy = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]

local mode = modeOf(lock)
local had = (mode == 'read' or mode == 'write') and tonumber(redis.call('HGET', lock, field))
if not had then
  return answer(0, copy)
end
local ttl = redis.call('PTTL', lock)
if string.sub(field, -6) ~= ':write' then
  local key, longest
  for i = math.max(1, had - 9999), had do
    local lives = ttlOf(keyOf(lock, field, i))
    if lives ~= -2 and (not key or lives > longest) then
      key, longest = keyOf(lock, field, i), lives
    end
  end
  if not key then
    return answer(0, copy)
  end
  stretch(key, longest, lease)
end
stretch(lock, ttl, lease)
return answer(1, copy)
