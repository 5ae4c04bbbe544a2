-- delete_token.lua: remove the token of a name that is used no more.
--
-- KEYS[1]  lock     hash: owner -> number of holds; absent = free
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  KEYS[2]  nothing is voided
-- KEYS[4]  token    integer without expiry: the last token that was given; absent: none was
-- ARGV[1]  copy     '2': whose token was removed can't be read off the state later
--
-- Returns  1  removed
--          0  there was none
--          3  refused: somebody holds the lock, without expiry
--          5  KEYS[4] holds no token; nothing was written
--          10 + n  refused: somebody holds the lock for n more milliseconds
-- Writes   KEYS[4]      Publishes  nothing
-- Repeat   safe: a further copy finds the marker, and leaves a later token alone
local lock, token, copy = KEYS[1], KEYS[4], ARGV[1]

local ttl = redis.call('PTTL', lock)
if ttl ~= -2 then
  return answer(ttl < 0 and 3 or 10 + ttl, copy)
end
local last = redis.pcall('GET', token) -- pcall: a key of another type
if last == false then
  return answer(0, copy)
end
if type(last) ~= 'string' or not (last == '0' or string.find(last, '^[1-9]%d*$')) then
  return answer(5, copy)
end
redis.call('DEL', token)
return answer(1, copy)
