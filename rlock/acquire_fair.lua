-- acquire_fair.lua: take a fair lock, enter it once more, or stand in its queue.
--
-- KEYS[1]  lock     hash: owner -> number of holds; absent = free
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  queue, timeout, alive: see queue.lua
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  lease    integer > 0, milliseconds
-- ARGV[3]  channel  of the lock; each waiter's is <channel>:<owner>
-- ARGV[4]  wait     milliseconds that its place adds to the queue; 0: don't queue
-- ARGV[5]  beat     milliseconds without word after which it is dead
-- ARGV[6]  count    the number of holds that the owner then has, this one included;
--                   nil: 1
-- ARGV[7]  copy     see marker.lua
--
-- Returns  1  granted, and it was free: the owner has one hold, whatever count says
--          2  granted, and the owner was in it: it has count holds
--          3  refused: somebody else has it, without expiry
--          4  the key is a hash, but no lock; nothing was written
--          10 + n  refused; try again after n milliseconds: somebody else has it for
--                  so long, or others are before the owner
-- Writes   KEYS[1]; its time to live is never shortened. KEYS[4], KEYS[5], KEYS[6]: the
--          owner's place, which goes with a grant; those that died before it; the
--          time to live of all three, to some time after the last place
-- Publishes  '0' to whom is first after the dead are gone
-- Repeat   safe: the count is absolute, a place is taken once, and who is granted
--          has none to give up a second time
local lock, owner, lease, channel = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local wait, beat, count, copy = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] or '1', ARGV[7]

local ttl = redis.call('PTTL', lock)
local free = ttl == -2
local entered = redis.call('HEXISTS', lock, owner) == 1
-- Two or more fields: a read-write lock, a rate limiter, or somebody's own hash.
if not free and redis.call('HLEN', lock) ~= 1 then
  return answer(4, copy)
end

local waiting, places = redis.call('LLEN', queue), redis.call('ZCARD', timeout)
local head, place, life
if waiting > 0 or places > 0 or wait > 0 then
  head = redis.call('LINDEX', queue, 0)
  place = redis.call('ZSCORE', timeout, owner)
  life = redis.call('ZSCORE', alive, owner)
end

-- keep gives the queue a time to live after its last place. If all who wait die and
-- nobody comes by again, it goes a day later. Redisson doesn't renew that time: with
-- one of its waiters in the queue it is ten years.
local function keep(last)
  redis.call('PEXPIRE', alive, string.format('%.0f', last - now + 60000))
  local stays = 86400000
  if redis.call('ZCARD', alive) < redis.call('LLEN', queue) then
    stays = 3650 * stays
  end
  for _, key in ipairs({queue, timeout}) do
    redis.call('PEXPIRE', key, string.format('%.0f', last - now + stays))
  end
end

-- latest is the time until which the last place is kept.
local function latest()
  return tonumber(redis.call('ZRANGE', timeout, -1, -1, 'WITHSCORES')[2])
end

-- sort_out takes the dead off the queue, all at once, and mends a queue of which
-- list and sorted set disagree: who is in the list has a place, who has a place
-- and lives is in the list. Those behind move up by what goes before them.
local function sort_out(judge)
  local line = redis.call('LRANGE', queue, 0, -1)
  local set = redis.call('ZRANGE', timeout, 0, -1, 'WITHSCORES')
  local kept, life_of = pairs_of(set), pairs_of(redis.call('ZRANGE', alive, 0, -1, 'WITHSCORES'))
  local seen, lost = {}, false
  for _, o in ipairs(line) do
    seen[o] = true
  end
  for i = 1, #set, 2 do
    local o = set[i]
    if not seen[o] and lives(life_of[o], kept[o]) then
      line[#line + 1], seen[o], lost = o, true, true
    end
  end
  if lost then
    local at = {}
    for i, o in ipairs(line) do
      at[o] = at[o] or i
    end
    table.sort(line, function(a, b)
      local ka, kb = kept[a] or 0, kept[b] or 0
      return ka < kb or ka == kb and at[a] < at[b]
    end)
  end

  local stay, moved, dead, before, up, first = {}, {}, {}, now + math.max(ttl, 0), 0, true
  for _, o in ipairs(line) do
    if seen[o] then
      seen[o] = nil -- a second time in the list: once is enough
      local score = kept[o]
      local gone = not score and not life_of[o] -- nothing says who that is
      if judge and o ~= owner and (first or life_of[o]) then
        gone = gone or not lives(life_of[o], score)
      end
      if gone then
        dead[#dead + 1] = o
        up = up + math.max((score or 0) - before, 0)
      else
        first = false
        stay[#stay + 1] = o
        if not score or up > 0 then
          moved[#moved + 1] = string.format('%.0f', (score or before + beat) - up)
          moved[#moved + 1] = o
        end
        life_of[o] = nil
      end
      kept[o] = nil
      before = math.max(score or before, before)
    end
  end
  local past = {} -- lives that belong to nobody in the queue
  for o in pairs(life_of) do
    past[#past + 1] = o
  end
  for o in pairs(kept) do -- places of nobody in the list, and not alive
    dead[#dead + 1] = o
  end
  local life_left = redis.call('PTTL', queue)
  redis.call('DEL', queue)
  in_parts(stay, function(...)
    redis.call('RPUSH', queue, ...)
  end)
  if life_left > 0 then
    redis.call('PEXPIRE', queue, life_left)
  end
  in_parts(dead, function(...)
    redis.call('ZREM', timeout, ...)
  end)
  in_parts(moved, function(...)
    redis.call('ZADD', timeout, ...)
  end)
  in_parts(past, function(...)
    redis.call('ZREM', alive, ...)
  end)
  if stay[1] and (waiting == 0 or places == 0) then
    keep(latest()) -- list or sorted set were gone, and are made anew
  end
  head = stay[1]
  place = redis.call('ZSCORE', timeout, owner)
end

-- mind gives those of ours in the queue whose life nobody knows a beat to show that
-- they live. The private key was lost, as memory that is too small evicts it: who
-- died before would be taken for one of Redisson's, who are silent while they wait.
local function mind()
  local known = pairs_of(redis.call('ZRANGE', alive, 0, -1, 'WITHSCORES'))
  local set, given, last = redis.call('ZRANGE', timeout, 0, -1, 'WITHSCORES'), {}, now
  for i = 1, #set, 2 do
    if ours(set[i]) and not known[set[i]] then
      given[#given + 1], given[#given + 2] = string.format('%.0f', now + beat), set[i]
    end
    last = math.max(last, tonumber(set[i + 1]))
  end
  in_parts(given, function(...)
    redis.call('ZADD', alive, ...)
  end)
  if redis.call('PTTL', alive) == -1 then
    redis.call('PEXPIRE', alive, string.format('%.0f', last - now + 60000))
  end
end

if head and head ~= owner and ours(head) and redis.call('ZSCORE', timeout, head) and not redis.call('ZSCORE', alive, head) then
  mind()
end

local judge = false
if head and head ~= owner and not lives(redis.call('ZSCORE', alive, head), redis.call('ZSCORE', timeout, head)) then
  -- Who has been cut off itself, by a server that stood still for example, is
  -- no judge of others: it speaks up first. Who comes by is.
  judge = not life or tonumber(life) - now >= beat / 3
end
if judge or waiting ~= places then
  local was = head
  sort_out(judge)
  if free and head and head ~= was and head ~= owner then
    tell(channel, head)
  end
end

if entered or free and (not head or head == owner) then
  if place then
    if head == owner then
      redis.call('LPOP', queue)
    else
      redis.call('LREM', queue, 1, owner)
    end
    redis.call('ZREM', timeout, owner)
    redis.call('ZREM', alive, owner)
    shift(redis.call('ZRANGEBYSCORE', timeout, place, '+inf', 'WITHSCORES'), -wait)
  end
  redis.call('HSET', lock, owner, entered and count or 1)
  if free or ttl >= 0 and ttl < tonumber(lease) then
    redis.call('PEXPIRE', lock, lease)
  end
  if entered then
    return answer(2, copy)
  end
  -- Holds were lost: a further copy, which finds the owner in, must say so too.
  return answer(1, copy or count ~= '1')
end

local rank = 0
if wait > 0 then
  local last
  if not place then
    local tail = redis.call('LINDEX', queue, -1)
    local after = tail and redis.call('ZSCORE', timeout, tail) or 0
    last = math.max(tonumber(after), now + math.max(ttl, 0)) + wait
    redis.call('RPUSH', queue, owner)
    redis.call('ZADD', timeout, string.format('%.0f', last), owner)
  elseif tonumber(place) - now < math.min(beat, wait) then
    -- Its place ends soon, though it is still here: Redisson would drop it.
    local by = now + math.max(ttl, 0) + wait - tonumber(place)
    if by > 0 then
      last = shift(redis.call('ZRANGEBYSCORE', timeout, place, '+inf', 'WITHSCORES'), by)
    end
  end
  redis.call('ZADD', alive, string.format('%.0f', now + beat), owner)
  if last or not life then -- without a life the private key may be new
    keep(last or latest())
  end
  rank = redis.call('ZRANK', timeout, owner)
end
if ttl == -1 then
  return answer(3, copy)
end
if not free then
  -- When the lease runs out nobody is told: the first tries first.
  return answer(10 + ttl + math.min(rank, 5) * 20, copy)
end
-- It is the turn of somebody who was told, and may be dead. Those behind look
-- after it, the nearer the more often, to learn of the lease it gets.
local ends = tonumber(redis.call('ZSCORE', alive, head) or redis.call('ZSCORE', timeout, head) or now)
return answer(10 + math.max(math.min(ends - now + 1, math.max(rank, 1) * 100), 1), copy)
