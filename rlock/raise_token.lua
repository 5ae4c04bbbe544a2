-- raise_token.lua: let a lock's tokens grow from a given number on.
--
-- KEYS[1]  lock     hash: owner -> number of holds; not looked at
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  KEYS[2]  nothing is voided
-- KEYS[4]  token    integer without expiry: the last token that was given; absent: none was
-- ARGV[1]  least    integer >= 0: what the last token shall be at least
-- ARGV[2]  copy     see marker.lua
--
-- Returns  1  the last token is at least ARGV[1]
--          5  KEYS[4] holds no token; nothing was written
-- Writes   KEYS[4], which never falls      Publishes  nothing
-- Repeat   safe: running it twice leaves what running it once leaves; late, it finds
--          its marker
local token, least, copy = KEYS[4], ARGV[1], ARGV[2]

local last = redis.pcall('GET', token) -- pcall: a key of another type
if last == false then
  last = '0'
elseif type(last) ~= 'string' or not (last == '0' or string.find(last, '^[1-9]%d*$')) then
  return answer(5, copy)
end
if tonumber(last) < tonumber(least) then
  redis.call('SET', token, least)
end
return answer(1, copy)
