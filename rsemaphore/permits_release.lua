-- permits_release.lua: give permits back, or undo an acquisition nobody waits for.
--
-- KEYS[1]  free     see expired.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   see marker.lua
-- KEYS[4]  permits  see expired.lua
-- ARGV[1]  channel  told the new number of free permits
-- ARGV[2]  all      '1': all or none; '0': those that are there
-- ARGV[3]  n        integer > 0, how many
-- ARGV[4..3+n]      ids, each once
-- ARGV[4+n] copy    see marker.lua; '2' where somebody wants to know the number
--
-- Returns  2 * m      m permits were given back
--          2 * m + 1  likewise, but the notification was refused: waiters poll
--          -i         the i-th is unknown or has expired, and none was given back
-- Writes   KEYS[1] unless it is absent, KEYS[4]      Publishes  the number of free
--          permits if it changed
-- Repeat   safe: ids are never used again. A further copy finds its marker, or
--          finds nothing, which the sender of several copies takes for its own work
local channel, all, n = ARGV[1], ARGV[2], tonumber(ARGV[3])
local copy = ARGV[4 + n]

local there, unknown = {}, nil
for i = 4, 3 + n do
  if lives(ARGV[i]) then
    there[#there + 1] = ARGV[i]
  else
    unknown = unknown or i - 3
  end
end
if all == '1' and unknown then
  there = {}
end
collect()
for _, id in ipairs(there) do
  redis.call('ZREM', permits, id)
end
if value and #there > 0 then
  redis.call('INCRBY', KEYS[1], #there)
end
local told = true
if value and #there + expired > 0 then
  told = publish(channel, free + #there)
end
if all == '1' and unknown then
  return answer(-unknown, copy)
end
return answer(2 * #there + (told and 0 or 1), copy)
