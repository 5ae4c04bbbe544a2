-- transfer.lua: pass a hold from one owner field to another.
--
-- KEYS[1]  lock     see readers.lua
-- KEYS[2]  marker   see marker.lua
-- KEYS[3]  voided   see marker.lua
-- ARGV[1]  from     field that holds it
-- ARGV[2]  to       field that is to hold it, of the same mode
-- ARGV[3]  lease    integer > 0, milliseconds
-- ARGV[4]  count    the number of read holds that to then has, this one included, if
--                   it has some; a writer has one
-- ARGV[5]  leases   of the read holds that from keeps; see release_read.lua
-- ARGV[6]  copy     see marker.lua
--
-- Returns  1  passed on: to has one hold
--          2  passed on, and to was reading: it has count holds
--          0  from doesn't hold it; the lock was left alone
--          6  refused: from reads and writes, and two owners can't share that
-- Writes   KEYS[1], whose time to live is never shortened, and the keys of read holds
-- Publishes  nothing
-- Repeat   safe: a further copy finds that to holds it already. A first copy
--          doesn't take that for its own work, so that a handle works once
local lock, from, to, lease, copy = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[6]
local count = tonumber(ARGV[4])
local writes = string.sub(from, -6) == ':write'

local function lives(field)
  local n = tonumber(redis.call('HGET', lock, field) or 0)
  if string.sub(field, -6) == ':write' then
    return n, n > 0 and 0 or -2
  end
  return n, life(lock, field, n)
end

local mode = modeOf(lock)
if mode ~= 'read' and mode ~= 'write' then
  return answer(0, copy)
end
local ttl = redis.call('PTTL', lock)
local had, longest = lives(from)
local toHad, toLongest = lives(to)
local entered = toLongest ~= -2
if longest == -2 then
  if copy and entered then
    return answer(not writes and count > 1 and 2 or 1, copy)
  end
  return answer(0, copy)
end

if writes then
  local reader = string.sub(from, 1, -7)
  local _, reads = lives(reader)
  if reads ~= -2 then
    return answer(6, copy)
  end
  redis.call('HSET', lock, to, 1)
  redis.call('HDEL', lock, from, reader)
  stretch(lock, ttl, lease)
  return answer(1, copy)
end
if mode ~= 'read' then
  return answer(6, copy)
end

local left = {}
for ms in string.gmatch(ARGV[5] or '', '%d+') do
  left[#left + 1] = tonumber(ms)
end
-- A copy that runs again passes on what was passed on: never for less.
local i = entered and count or 1
local need = math.max(lease, longest)
if toHad > i then
  need = math.max(need, toLongest)
end
local present = ttlOf(keyOf(lock, to, i))

redis.call('HSET', lock, to, i)
if present < need then
  redis.call('SET', keyOf(lock, to, i), 1, 'PX', need)
end
for j = i + 1, toHad do
  redis.call('DEL', keyOf(lock, to, j))
end
if #left == 0 then
  redis.call('HDEL', lock, from)
else
  redis.call('HSET', lock, from, #left)
end
for j, ms in ipairs(left) do
  redis.call('SET', keyOf(lock, from, j), 1, 'PX', ms)
  need = math.max(need, ms)
end
for j = #left + 1, had do
  redis.call('DEL', keyOf(lock, from, j))
end
stretch(lock, ttl, need)
return answer(entered and 2 or 1, copy)
