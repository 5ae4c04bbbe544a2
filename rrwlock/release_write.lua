-- release_write.lua: give back one write hold, or undo an acquisition nobody waits
-- for. A writer that reads, too, goes on reading, and others may.
--
-- KEYS[1]  lock     see readers.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   see marker.lua
-- KEYS[5]  readers  see readers.lua
-- ARGV[1]  field    <client id>:<owner id>:write
-- ARGV[2]  channel  told when others may read
-- ARGV[3]  turn     how long it then is the turn of the readers that wait, milliseconds
-- ARGV[4]  left     the number of write holds that the owner keeps; nil: 0
-- ARGV[5]  lease    milliseconds, for the holds that are left
-- ARGV[6]  copy     see marker.lua
--
-- Returns  1  given back
--          2  given back, but the notification was refused: waiters poll
--          0  the owner doesn't write; the lock was left alone
-- Writes   KEYS[1], KEYS[5]      Publishes  '1' when others may read
-- Repeat   safe: left is absolute. A further copy finds the field gone and
--          answers 0, which the sender of several copies takes for its own work
local lock, readers = KEYS[1], KEYS[5]
local field, channel, copy = ARGV[1], ARGV[2], ARGV[6]
local left = ARGV[4] or '0'

if modeOf(lock) ~= 'write' or redis.call('HEXISTS', lock, field) == 0 then
  return answer(0, copy)
end
if left ~= '0' then
  local ttl = redis.call('PTTL', lock)
  redis.call('HSET', lock, field, left)
  stretch(lock, ttl, tonumber(ARGV[5]))
  return answer(1, copy)
end

local longest, gone, strange = census(lock)
if longest == -2 and not strange then
  redis.call('DEL', lock)
else
  redis.call('HSET', lock, 'mode', 'read')
  redis.call('HDEL', lock, field)
  drop(lock, gone)
  if longest >= 0 then
    redis.call('PEXPIRE', lock, longest)
  end
end
turn(readers, tonumber(ARGV[3]))
return answer(tell(channel, '1') and 1 or 2, copy)
