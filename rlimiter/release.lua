-- release.lua: give permits back: take the newest grants out of the window.
--
-- KEYS      see window.lua; KEYS[2] marker, KEYS[3] voided: see marker.lua
-- ARGV[1]   n        number of permits
-- ARGV[2]   copy     '2': whose grants were taken out can't be read off the state
--
-- Returns   1  given back, as many of them as were in the window
--           2  no rate is set
-- Writes    value, permits      Publishes  nothing
-- Repeat    safe: a further copy finds the marker, and leaves later grants alone
local n, copy = tonumber(ARGV[1]), ARGV[2]

if not rate then
  return answer(2, copy)
end
local edge, expired, free = look()

local gone, part, back, at = {}, nil, 0, 0
repeat
  local grants = redis.call('ZREVRANGE', permits, at, at + 99, 'WITHSCORES')
  for i = 1, #grants, 2 do
    local member, score = grants[i], grants[i + 1]
    if back == n or tonumber(score) < edge then
      grants = {}
      break
    end
    local has = count(member)
    if has > n - back then -- a part of it stays, under the same id
      local stays = has - (n - back)
      part = {score = score, member = string.sub(member, 1, -5) .. string.char(
        stays % 256, math.floor(stays / 256) % 256, math.floor(stays / 65536) % 256, math.floor(stays / 16777216))}
      has = n - back
    end
    gone[#gone + 1] = member
    back = back + has
  end
  at = at + 100
until #grants == 0

if expired > 0 then
  redis.call('ZREMRANGEBYRANK', permits, 0, expired - 1)
end
for _, member in ipairs(gone) do
  redis.call('ZREM', permits, member)
end
if part then
  redis.call('ZADD', permits, part.score, part.member)
end
redis.call('SET', value, whole(free + back))
keep()
return answer(1, copy)
