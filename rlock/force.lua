-- force.lua: open a lock, whoever holds it.
--
-- KEYS[1]  lock     hash: owner -> number of holds
-- KEYS[2]  marker   see marker.lua
-- ARGV[1]  channel  told that the lock is free; '': nobody is
-- ARGV[2]  copy     '2': which hold was opened can't be read off the state later
--
-- Returns  1  opened
--          2  opened, but the notification was refused: waiters poll
--          3  opened, and there is no channel
--          0  it was free
--          4  the key is a hash, but no lock; nothing was written
-- Writes   KEYS[1]      Publishes  '0' if it was held
-- Repeat   safe: a further copy finds the marker, and leaves the next holder alone
local lock, channel, copy = KEYS[1], ARGV[1], ARGV[2]

local fields = redis.call('HLEN', lock)
if fields == 0 then
  return answer(0, copy)
end
if fields ~= 1 then
  return answer(4, copy)
end
redis.call('DEL', lock)
if channel == '' then
  return answer(3, copy)
end
local told = redis.pcall('PUBLISH', channel, '0')
if type(told) == 'table' and told.err then
  return answer(2, copy)
end
return answer(1, copy)
