-- release.lua: give back one hold, or undo an acquisition nobody waits for.
--
-- KEYS[1]  lock     hash: owner -> number of holds
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   see marker.lua
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  channel  told when the lock becomes free; '': nobody is
-- ARGV[3]  left     the number of holds that the owner keeps; nil: 0
-- ARGV[4]  lease    milliseconds, for the holds that are left
-- ARGV[5]  copy     see marker.lua
--
-- Returns  1  given back
--          2  given back, but the notification was refused: waiters poll
--          3  given back, and there is no channel
--          0  the owner doesn't hold it; the lock was left alone
-- Writes   KEYS[1]      Publishes  '0' when the lock becomes free
-- Repeat   safe: left is absolute. A further copy finds the field gone and
--          answers 0, which the sender of several copies takes for its own work
local lock, owner, channel, left, lease, copy = KEYS[1], ARGV[1], ARGV[2], ARGV[3] or '0', ARGV[4], ARGV[5]

-- The usual case, in four commands: a first copy, the owner's only hold, no
-- marker. The only field goes, and the key with it.
if #ARGV == 2 and #KEYS == 2 and redis.call('EXISTS', KEYS[2]) == 0 then
  if redis.call('HLEN', lock) ~= 1 or redis.call('HDEL', lock, owner) == 0 then
    return 0
  end
  if channel == '' then
    return 3
  end
  local told = redis.pcall('PUBLISH', channel, '0')
  return type(told) == 'table' and told.err and 2 or 1
end
-- marker.lua stands here.

-- More than one field: another primitive's hash, in which the owner's field
-- means something else.
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

redis.call('DEL', lock)
if channel == '' then
  return answer(3, copy)
end
-- pcall: a user without rights to the channel must still be able to unlock.
local told = redis.pcall('PUBLISH', channel, '0')
if type(told) == 'table' and told.err then
  return answer(2, copy)
end
return answer(1, copy)
