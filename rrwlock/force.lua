-- force.lua: open a lock for those whom its readers, or its writer, keep out.
--
-- KEYS[1]  lock     see readers.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[5]  readers  see readers.lua
-- ARGV[1]  mode     read: if it is read, throw all readers out; write: if it is
--                   written, the writer, also where it reads
-- ARGV[2]  channel  told that the lock is free
-- ARGV[3]  turn     how long it then is the turn of the readers that wait, milliseconds
-- ARGV[4]  copy     '2': which holds were ended can't be read off the state later
--
-- Returns  1  opened
--          2  opened, but the notification was refused: waiters poll
--          0  it wasn't held in this mode
--          4  the key is a hash, but no read-write lock; nothing was written
-- Writes   KEYS[1], the keys of all read holds, KEYS[5]      Publishes  as the release of the
--          last hold would
-- Repeat   safe: a further copy finds the marker, and leaves the next holder alone
local lock, mode, channel, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[4]

local present = modeOf(lock)
local _, _, strange = census(lock)
if present == 'foreign' or strange then
  return answer(4, copy)
end
if present ~= mode then
  return answer(0, copy)
end
local all = redis.call('HGETALL', lock)
for i = 1, #all, 2 do
  local n = tonumber(all[i + 1])
  for j = math.max(1, (n or 0) - 9999), n or 0 do
    redis.call('DEL', keyOf(lock, all[i], j))
  end
end
redis.call('DEL', lock)
if mode == 'write' then
  turn(KEYS[5], tonumber(ARGV[3]))
end
return answer(tell(channel, mode == 'write' and '1' or '0') and 1 or 2, copy)
