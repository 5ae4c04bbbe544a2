-- release_fair.lua: give back one hold of a fair lock, or undo an acquisition
-- nobody waits for. A place in the queue stays: see leave.lua.
--
-- KEYS[1]  lock     hash: owner -> number of holds
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   see marker.lua
-- KEYS[4]  queue, timeout, alive: see queue.lua
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  channel  of the lock; each waiter's is <channel>:<owner>
-- ARGV[3]  left     the number of holds that the owner keeps; nil: 0
-- ARGV[4]  lease    milliseconds, for the holds that are left
-- ARGV[5]  copy     see marker.lua
--
-- Returns  1  given back
--          2  given back, but the notification was refused: waiters poll
--          3  given back, and nobody waits in the queue
--          0  the owner doesn't hold it; the lock was left alone
-- Writes   KEYS[1]      Publishes  '0' to who is next, when the lock becomes free
-- Repeat   safe: left is absolute. A further copy finds the field gone and
--          answers 0, which the sender of several copies takes for its own work
local lock, owner, channel, left, lease, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3] or '0', ARGV[4], ARGV[5]

if redis.call('HEXISTS', lock, owner) == 0 or redis.call('HLEN', lock) ~= 1 then
  return answer(0, copy)
end

if left ~= '0' then
  local ttl = redis.call('PTTL', lock)
  redis.call('HSET', lock, owner, left)
  if ttl >= 0 and ttl < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
  end
  return answer(1, copy)
end

local next = next_up()
redis.call('DEL', lock)
return answer(tell(channel, next), copy)
