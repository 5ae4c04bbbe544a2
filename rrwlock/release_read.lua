-- release_read.lua: give back one read hold, or undo an acquisition nobody waits for.
--
-- KEYS[1]  lock     see readers.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   see marker.lua
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  channel  told when the lock becomes free
-- ARGV[3]  leases   of the read holds that the owner keeps, in milliseconds from now, a
--                   space between them; nil: it keeps none
-- ARGV[4]  copy     see marker.lua
--
-- Returns  1  given back
--          2  given back, but the notification was refused: waiters poll
--          0  the owner doesn't read: what was left of its holds is gone now
-- Writes   KEYS[1] and the keys of the owner's holds. Those that are left get exactly
--          the leases: what the one given back had protected longer ends with it
-- Publishes  '0' when the lock becomes free
-- Repeat   safe: what is left is absolute. A further copy finds the field gone and
--          answers 0, which the sender of several copies takes for its own work
local lock, owner, channel, leases, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3] or '', ARGV[4]

local mode = modeOf(lock)
local had = (mode == 'read' or mode == 'write') and tonumber(redis.call('HGET', lock, owner))
if not had then
  return answer(0, copy)
end
local left = {}
for ms in string.gmatch(leases, '%d+') do
  left[#left + 1] = tonumber(ms)
end
local alive = life(lock, owner, had) ~= -2
local longest, gone, strange = census(lock, owner)
local ttl = redis.call('PTTL', lock)

if not alive or #left == 0 then
  left = {}
  redis.call('HDEL', lock, owner)
else
  redis.call('HSET', lock, owner, #left)
end
for i, ms in ipairs(left) do
  redis.call('SET', keyOf(lock, owner, i), 1, 'PX', ms)
  longest = math.max(longest, ms)
end
for i = #left + 1, had do
  redis.call('DEL', keyOf(lock, owner, i))
end
drop(lock, gone)

if mode == 'write' or strange then
  stretch(lock, ttl, longest)
elseif longest ~= -2 then
  if ttl >= 0 then
    redis.call('PEXPIRE', lock, longest)
  end
else
  redis.call('DEL', lock)
  if not tell(channel, '0') and alive then
    return answer(2, copy)
  end
end
return answer(alive and 1 or 0, copy)
