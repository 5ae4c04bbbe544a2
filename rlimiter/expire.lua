-- expire.lua: have a limiter go after some time.
--
-- KEYS      see window.lua; KEYS[2] marker, KEYS[3] voided: see marker.lua
-- ARGV[1]   ttl      integer > 0, milliseconds
-- ARGV[2]   copy     '2': a late copy must not undo a later change
--
-- Returns   1  done
--           0  no rate is set; nothing was written
-- Writes    the expiry of KEYS[1], value, permits      Publishes  nothing
-- Repeat    safe: a further copy finds the marker, and changes nothing
if not rate then
  return answer(0, ARGV[2])
end
redis.call('PEXPIRE', limiter, ARGV[1])
keep()
return answer(1, ARGV[2])
