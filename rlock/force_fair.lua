-- force_fair.lua: open a fair lock, whoever holds it.
--
-- KEYS[1]  lock     hash: owner -> number of holds
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  queue, timeout, alive: see queue.lua
-- ARGV[1]  channel  of the lock; each waiter's is <channel>:<owner>
-- ARGV[2]  copy     '2': which hold was opened can't be read off the state later
--
-- Returns  1  opened
--          2  opened, but the notification was refused: waiters poll
--          3  opened, and nobody waits in the queue
--          0  it was free
--          4  the key is a hash, but no lock; nothing was written
-- Writes   KEYS[1]      Publishes  '0' to who is next, if it was held
-- Repeat   safe: a further copy finds the marker, and leaves the next holder alone
local lock, channel, copy = KEYS[1], ARGV[1], ARGV[2]

local fields = redis.call('HLEN', lock)
if fields == 0 then
  return answer(0, copy)
end
if fields ~= 1 then
  return answer(4, copy)
end
local next = next_up()
redis.call('DEL', lock)
return answer(tell(channel, next), copy)
