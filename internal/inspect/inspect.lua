-- inspect.lua: what stands at a name, all of it at one moment.
--
-- KEYS[1]   name      of any type
-- KEYS[2]   token     string: the last fencing token
-- KEYS[3]   queue     list: owners that wait for a fair lock
-- KEYS[4]   timeout   sorted set: owner that waits there -> ms until which its place is kept
-- KEYS[5]   alive     sorted set: the same -> ms until which it lives
-- KEYS[6]   writers   sorted set: owner that waits to write -> ms until which that counts
-- KEYS[7]   readers   sorted set: owner that waits to read -> the same; '' is no owner
-- KEYS[8]   leases    sorted set: permit -> ms at which it expires
-- KEYS[9]   value     string: permits left in the window of a rate limiter
-- KEYS[10]  grants    sorted set: grant in that window -> ms at which it was made
-- KEYS[11]  opened    string: when a latch of this name was opened last
-- ARGV[1]   start     what the keys of read holds start with
-- ARGV[2]   limit     integer: no list is longer; their sizes are told in full
-- ARGV[3]   channel   of a semaphore
-- ARGV[4]   channel   of a latch
-- ARGV[5..] channel   of other primitives
--
-- Returns  a list of labels and values, of what there is:
--          now, type, ttl (ms, -1: none), text, fields (a flat list), len (their number),
--          lives (ms, for each reader in the order of fields; -2: gone), token, queue (owner,
--          timeout and alive, '' where there is none), waiting (their number), writers and
--          readers (owner, ms), leases (permit, ms), leased and expired (their numbers), left,
--          opened, listening (connections, for each channel)
-- Writes   nothing      Publishes  nothing
-- Repeat   safe: it only reads. The keys of read holds are named after fields of
--          the hash, so that they can't all stand in KEYS; their slot is the name's
local name, limit = KEYS[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local out = {}
local function put(label, value)
  out[#out + 1] = label
  out[#out + 1] = value
end
local function whole(n)
  return string.format('%.0f', n)
end
local function typeOf(key)
  local t = redis.call('TYPE', key)
  return type(t) == 'table' and t.ok or t
end
-- A number of 64 bits has 20 characters at most: longer texts aren't read.
local function text(key)
  return typeOf(key) == 'string' and redis.call('STRLEN', key) <= 20 and redis.call('GET', key)
end

-- reads answers how long the longest of an owner's n read holds lasts.
local function reads(owner, n)
  local longest = -2
  for i = math.max(1, n - 99), n do
    local ttl = redis.call('PTTL', ARGV[1] .. ':' .. owner .. ':rwlock_timeout:' .. whole(i))
    longest = (ttl == -1 or longest == -1) and -1 or math.max(longest, ttl)
  end
  return longest
end

-- left answers how many permits the window of a limiter has, -1 if nothing says so.
local function left(rate, interval)
  if typeOf(KEYS[10]) ~= 'zset' then
    return rate
  end
  local edge = whole(now - interval)
  local gone = redis.call('ZCOUNT', KEYS[10], '-inf', '(' .. edge)
  if redis.call('ZCARD', KEYS[10]) == gone then
    return rate
  end
  local free = tonumber(text(KEYS[9]) or '')
  if not free or gone > 10 * limit then
    return free or -1
  end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[10], '-inf', '(' .. edge)) do
    local a, b, c, d = string.byte(member, -4, -1)
    free = free + (d and a + 256 * (b + 256 * (c + 256 * d)) or 0)
  end
  return math.min(free, rate)
end

local kind = typeOf(name)
put('now', whole(now))
put('type', kind)
if kind ~= 'none' then
  put('ttl', redis.call('PTTL', name))
end

if kind == 'string' then
  put('text', text(name) or '')
  if redis.call('EXISTS', KEYS[11]) == 1 then
    put('opened', 1)
  end
end

if kind == 'hash' then
  local len = redis.call('HLEN', name)
  local config = redis.call('HMGET', name, 'mode', 'rate', 'interval', 'type', 'keepAliveTime')
  local fields, lives = {}, {}
  if len <= limit + 1 then
    fields = redis.call('HGETALL', name)
  else
    for i, label in ipairs({'mode', 'rate', 'interval', 'type', 'keepAliveTime'}) do
      if config[i] then
        fields[#fields + 1], fields[#fields + 2] = label, config[i]
      end
    end
  end
  if config[1] then
    for i = 1, #fields, 2 do
      local n = tonumber(fields[i + 1])
      if fields[i] ~= 'mode' and string.sub(fields[i], -6) ~= ':write' then
        lives[#lives + 1] = n and reads(fields[i], n) or -2
      end
    end
  end
  put('len', len)
  put('fields', fields)
  put('lives', lives)
  if tonumber(config[2] or '') and tonumber(config[3] or '') and config[4] ~= '1' then
    put('left', whole(left(tonumber(config[2]), tonumber(config[3]))))
  end
end

local function waiters(label, key)
  if typeOf(key) == 'zset' then
    put(label, redis.call('ZRANGE', key, 0, limit - 1, 'WITHSCORES'))
  end
end
if kind == 'hash' or kind == 'none' then
  local token = text(KEYS[2])
  if token then
    put('token', token)
  end
  if typeOf(KEYS[3]) == 'list' then
    local kept, alive = typeOf(KEYS[4]) == 'zset', typeOf(KEYS[5]) == 'zset'
    local queue = {}
    for _, owner in ipairs(redis.call('LRANGE', KEYS[3], 0, limit - 1)) do
      queue[#queue + 1] = owner
      queue[#queue + 1] = kept and redis.call('ZSCORE', KEYS[4], owner) or ''
      queue[#queue + 1] = alive and redis.call('ZSCORE', KEYS[5], owner) or ''
    end
    put('waiting', redis.call('LLEN', KEYS[3]))
    put('queue', queue)
  end
  waiters('writers', KEYS[6])
  waiters('readers', KEYS[7])
end

if (kind == 'string' or kind == 'none') and typeOf(KEYS[8]) == 'zset' then
  put('leased', redis.call('ZCARD', KEYS[8]))
  put('expired', redis.call('ZCOUNT', KEYS[8], '-inf', whole(now)))
  waiters('leases', KEYS[8])
end

-- pcall: a user may lack the right, and an old server the command.
local listen = {}
for _, numbers in ipairs({
  redis.pcall('PUBSUB', 'NUMSUB', unpack(ARGV, 3)),
  redis.pcall('PUBSUB', 'SHARDNUMSUB', unpack(ARGV, 3)),
}) do
  for i = 2, numbers.err and 0 or #numbers, 2 do
    listen[i / 2] = (listen[i / 2] or 0) + tonumber(numbers[i])
  end
end
put('listening', listen)
return out
