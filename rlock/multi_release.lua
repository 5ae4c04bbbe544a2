-- multi_release.lua: give back one hold each of several locks of one slot, or undo
-- an acquisition nobody waits for.
--
-- KEYS[1]     lock     the first one; hash: owner -> number of holds
-- KEYS[2]     marker   see marker.lua
-- KEYS[3]     voided   see marker.lua
-- KEYS[2+i]   lock     the i-th one, from the second on
-- ARGV[1]     owner    <client id>:<owner id>
-- ARGV[3i-1]  channel  told when the i-th lock becomes free; '': nobody is
-- ARGV[3i]    left     the number of holds that the owner keeps of it
-- ARGV[3i+1]  lease    milliseconds, for the holds that are left
-- ARGV[3n+2]  copy     see marker.lua; n is the number of locks
--
-- Returns  a letter for each lock, in one text
--          y  given back
--          s  given back, and nobody was to be told
--          u  given back, but the notification was refused: waiters poll
--          n  the owner doesn't hold it; the lock was left alone
-- Writes   the locks      Publishes  '0' for each that becomes free
-- Repeat   safe: left is absolute. A further copy finds the field gone and
--          answers n, which the sender of several copies takes for its own work
local owner = ARGV[1]
local locks = {KEYS[1]}
for i = 4, #KEYS do
  locks[#locks + 1] = KEYS[i]
end
local copy = ARGV[3 * #locks + 2]

local ttls = {}
for i, lock in ipairs(locks) do
  -- Another type, or more than one field: not ours, see release.lua.
  ttls[i] = redis.call('TYPE', lock).ok == 'hash' and redis.call('HEXISTS', lock, owner) == 1
    and redis.call('HLEN', lock) == 1 and redis.call('PTTL', lock)
end

local told = {}
for i, lock in ipairs(locks) do
  local channel, left, lease = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  if not ttls[i] then
    told[i] = 'n'
  elseif left ~= '0' then
    redis.call('HSET', lock, owner, left)
    if ttls[i] >= 0 and ttls[i] < tonumber(lease) then
      redis.call('PEXPIRE', lock, lease)
    end
    told[i] = 'y'
  else
    redis.call('DEL', lock)
    told[i] = 's'
  end
  if told[i] == 's' and channel ~= '' then
    -- pcall: a user without rights to the channel must still be able to unlock.
    local heard = redis.pcall('PUBLISH', channel, '0')
    told[i] = type(heard) == 'table' and heard.err and 'u' or 'y'
  end
end
return answer(table.concat(told), copy)
