-- held.lua: how many holds an owner has.
--
-- KEYS[1]  lock   see readers.lua
-- ARGV[1]  field  <client id>:<owner id>, with :write for write holds
--
-- Returns  their number
-- Writes   nothing      Publishes  nothing
-- Repeat   safe: it only looks
local lock, field = KEYS[1], ARGV[1]

local n = tonumber(redis.call('HGET', lock, field) or 0) or 0
if n > 0 and string.sub(field, -6) ~= ':write' and life(lock, field, n) == -2 then
  return 0
end
return n
