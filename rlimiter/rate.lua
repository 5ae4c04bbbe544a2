-- rate.lua: set the rate of a limiter.
--
-- KEYS      see window.lua; KEYS[2] marker, KEYS[3] voided: see marker.lua
-- ARGV[1]   how      'try': only if none is set; 'set': in any case, with an empty
--                    window; 'update': only if one is set, with the window as it is
-- ARGV[2]   rate     permits per interval, > 0
-- ARGV[3]   interval ms, > 0
-- ARGV[4]   type     '0' over all clients, '1' per client
-- ARGV[5]   keep     ms that the limiter lives without being used; '0': for ever
-- ARGV[6]   copy     '2': who set a rate can't be read off the state
--
-- Returns   1  set
--           0  try: a rate is set already; update: none is. Nothing was written
-- Writes    KEYS[1]; of the window of the new type, value and permits
--           Publishes  nothing
-- Repeat    safe: a further copy finds the marker, and leaves a later rate alone
local how, copy = ARGV[1], ARGV[6]

if how == 'try' and rate or how == 'update' and not rate then
  return answer(0, copy)
end
value, permits = KEYS[#KEYS - 3], KEYS[#KEYS - 2]
if ARGV[4] == '1' then
  value, permits = KEYS[#KEYS - 1], KEYS[#KEYS]
end
local granted = how ~= 'set' and redis.call('ZRANGE', permits, 0, -1) or {}

redis.call('HSET', limiter, 'rate', ARGV[2], 'interval', ARGV[3], 'keepAliveTime', ARGV[5], 'type', ARGV[4])
if ARGV[5] ~= '0' then
  redis.call('PEXPIRE', limiter, ARGV[5])
elseif (tonumber(config[4] or '') or 0) > 0 then
  redis.call('PERSIST', limiter)
  redis.call('PERSIST', value)
  redis.call('PERSIST', permits)
end
if how == 'set' then
  redis.call('DEL', value, permits)
elseif #granted > 0 then
  -- Of all that stand in the set; those that have left the window are added back
  -- when they are taken out.
  redis.call('SET', value, whole(tonumber(ARGV[2]) - sum(granted)))
  keep()
else
  redis.call('DEL', value)
end
return answer(1, copy)
