-- acquire.lua: take permits out of the window, or learn when there will be enough.
--
-- KEYS      see window.lua; KEYS[2] marker, KEYS[3] voided: see marker.lua
-- ARGV[1]   wanted   number of permits, 1 to 2^32 - 1
-- ARGV[2]   member   what the grant is to be called in the sorted set
-- ARGV[3]   copy     see marker.lua
--
-- Returns   1  granted
--           2  no rate is set
--           3  more wanted than the rate
--           10 + n  refused: in n ms there are enough, unless others are granted before
-- Writes    value, permits; with keepAliveTime their expiry and the limiter's; nothing
--           after a refusal      Publishes  nothing
-- Repeat    safe: a grant is always marked, so a further copy answers it and takes
--           nothing. A refusal isn't: it took nothing, and a further copy asks anew
local wanted, member, copy = tonumber(ARGV[1]), ARGV[2], ARGV[3]

if not rate then
  return answer(2, copy)
end
if wanted > rate then
  return answer(3, copy)
end
local edge, expired, free, now = look()

-- free can be less than there is, if the rate was raised by somebody who left value
-- as it was. Then the grants don't add up to what is missing, and their sum tells.
while free < wanted do
  local freed, at = 0, expired
  repeat
    local grants = redis.call('ZRANGE', permits, at, at + 99, 'WITHSCORES')
    for i = 1, #grants, 2 do
      freed = freed + count(grants[i])
      if free + freed >= wanted then
        return answer(10 + tonumber(grants[i + 1]) - edge + 1, copy)
      end
    end
    at = at + 100
  until #grants == 0
  free = rate - freed
end

if expired > 0 then
  redis.call('ZREMRANGEBYRANK', permits, 0, expired - 1)
end
redis.call('ZADD', permits, whole(now), member)
redis.call('SET', value, whole(free - wanted))
if (tonumber(config[4] or '') or 0) > 0 then
  redis.call('PEXPIRE', limiter, config[4])
end
keep()
return answer(1, copy or '2')
