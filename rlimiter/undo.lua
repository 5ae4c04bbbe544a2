-- undo.lua: take back a grant that nobody waits for.
--
-- KEYS      see window.lua; KEYS[2] marker, KEYS[3] voided: see marker.lua
-- ARGV[1]   member   of the grant
-- ARGV[2]   copy     see marker.lua
--
-- Returns   1  taken back
--           0  it isn't there: not granted, out of the window, or given back
-- Writes    value and permits, of all clients or of this one      Publishes  nothing
-- Repeat    safe: the member is there once
local member, copy = ARGV[1], ARGV[2]

-- Both windows: the type of the rate may have changed since.
local n = #KEYS
local inAll, inOurs = redis.call('ZSCORE', KEYS[n - 2], member), redis.call('ZSCORE', KEYS[n], member)
local valueOfAll, valueOfOurs = redis.call('GET', KEYS[n - 3]), redis.call('GET', KEYS[n - 1])
if inAll then
  redis.call('ZREM', KEYS[n - 2], member)
  if valueOfAll then
    redis.call('INCRBY', KEYS[n - 3], count(member))
  end
end
if inOurs then
  redis.call('ZREM', KEYS[n], member)
  if valueOfOurs then
    redis.call('INCRBY', KEYS[n - 1], count(member))
  end
end
return answer((inAll or inOurs) and 1 or 0, copy)
