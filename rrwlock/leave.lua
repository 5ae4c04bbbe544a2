-- leave.lua: an owner waits no more. Those who let it in first needn't any longer.
--
-- KEYS[1]  lock     see readers.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  writers  see readers.lua
-- KEYS[5]  readers  see readers.lua
-- ARGV[1]  mode     read, write: what it waited for
-- ARGV[2]  owner    <client id>:<owner id>
-- ARGV[3]  channel  told if others may try now
-- ARGV[4]  copy     see marker.lua
--
-- Returns  1  it left
--          2  it left, but the notification was refused: waiters poll
--          0  it didn't stand there
-- Writes   KEYS[4] or KEYS[5]      Publishes  '1' when the last writer left, '0' when the
--          last of the readers whose turn it is did
-- Repeat   safe: a copy that comes when the owner waits anew takes it out, and it
--          stands there again after its next try
local lock, writers, readers = KEYS[1], KEYS[4], KEYS[5]
local mode, owner, channel, copy = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local now = clock()
local told = true
if mode == 'write' then
  if redis.call('ZREM', writers, owner) == 0 then
    return answer(0, copy)
  end
  if redis.call('ZCOUNT', writers, '(' .. now, '+inf') == 0 then
    told = tell(channel, '1')
  end
else
  local ends = turnOf(readers, now)
  if redis.call('ZREM', readers, owner) == 0 then
    return answer(0, copy)
  end
  if ends > 0 and redis.call('ZCOUNT', readers, '(' .. now, '+inf') == 1 then
    redis.call('ZREM', readers, '')
    told = tell(channel, '0')
  end
end
return answer(told and 1 or 2, copy)
