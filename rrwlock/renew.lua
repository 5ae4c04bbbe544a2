-- renew.lua: give holds a fresh lease.
--
-- KEYS[i]    lock    see readers.lua
-- ARGV[1]    lease   integer > 0, milliseconds
-- ARGV[i+1]  field   who should hold KEYS[i]: <client id>:<owner id>, with :write for a
--                    write hold
--
-- Returns  for each  1  the owner holds it, for at least lease more
--                    0  it doesn't; nothing was written
-- Writes   the expiry of KEYS[i] and, for a reader, of the keys of its own read holds;
--          none is ever shortened      Publishes  nothing
-- Repeat   safe: running it twice leaves what running it once leaves. Late, it
--          can only give what this owner holds then a lease more
local lease = tonumber(ARGV[1])

local plans = {}
for i, lock in ipairs(KEYS) do
  local field = ARGV[i + 1]
  -- pcall: a key of another type is a lost hold, not a failure of the others.
  local n = redis.pcall('HGET', lock, field)
  n = type(n) == 'string' and tonumber(n)
  if n and string.sub(field, -6) == ':write' then
    plans[i] = { [lock] = redis.call('PTTL', lock) }
  elseif n then
    local plan
    for j = math.max(1, n - 9999), n do
      local key = keyOf(lock, field, j)
      local ttl = ttlOf(key)
      if ttl ~= -2 then
        plan = plan or { [lock] = redis.call('PTTL', lock) }
        plan[key] = ttl
      end
    end
    plans[i] = plan or false
  else
    plans[i] = false
  end
end
local held = {}
for i, plan in ipairs(plans) do
  for key, ttl in pairs(plan or {}) do
    stretch(key, ttl, lease)
  end
  held[i] = plan and 1 or 0
end
return held
