-- queue.lua: the queue of a fair lock. It follows marker.lua in each of its
-- scripts, and only defines what they share.
--
-- KEYS[4]  queue    list of owners that wait, the next one first
-- KEYS[5]  timeout  sorted set: owner -> epoch ms until which its place is kept;
--                   each is later than the one before by its wait time
-- KEYS[6]  alive    private sorted set: owner -> epoch ms until which it lives.
--                   Redisson's owners aren't in it
-- ARGV[n]  nothing of its own
--
-- Returns  nothing
-- Repeat   it reads the server's clock and writes nothing by itself
local queue, timeout, alive = KEYS[4], KEYS[5], KEYS[6]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- in_parts calls f with 1000 values of list at a time: Lua passes on some
-- thousands at most.
local function in_parts(list, f)
  for i = 1, #list, 1000 do
    f(unpack(list, i, math.min(i + 999, #list)))
  end
end

-- ours reports whether a waiter is one of this module's: the ids of Redisson's end
-- in the number of a thread.
local function ours(owner)
  return not string.find(owner, ':%d+$')
end

-- lives reports whether a waiter counts: one of ours as long as it says so, one
-- of Redisson's, which says nothing, as long as its place is kept.
local function lives(life, kept)
  if life then
    return tonumber(life) >= now
  end
  return kept and tonumber(kept) > now
end

-- pairs_of makes a table of what ZRANGE ... WITHSCORES answers.
local function pairs_of(flat)
  local scores = {}
  for i = 1, #flat, 2 do
    scores[flat[i]] = tonumber(flat[i + 1])
  end
  return scores
end

-- shift moves the places of a ZRANGE ... WITHSCORES answer by so many ms, all
-- in one command, and answers the latest.
local function shift(flat, by)
  local moved, last = {}, 0
  for i = 1, #flat, 2 do
    last = tonumber(flat[i + 1]) + by
    moved[i], moved[i + 1] = string.format('%.0f', last), flat[i]
  end
  in_parts(moved, function(...)
    redis.call('ZADD', timeout, ...)
  end)
  return last
end

-- next_up answers who is to be told that the lock is free: the first who counts,
-- or, if nobody does, the first, who may just be late. besides is passed over.
-- pcall: a key of another type must not keep the lock from being given back.
local function next_up(besides)
  local first = redis.pcall('LINDEX', queue, 0)
  if type(first) ~= 'string' then
    return nil
  end
  local life, kept = redis.pcall('ZSCORE', alive, first), redis.pcall('ZSCORE', timeout, first)
  if type(life) == 'table' or type(kept) == 'table' then
    return first
  end
  if first ~= besides and lives(life, kept) then
    return first
  end
  kept = pairs_of(redis.call('ZRANGE', timeout, 0, -1, 'WITHSCORES'))
  life = pairs_of(redis.call('ZRANGE', alive, 0, -1, 'WITHSCORES'))
  local late
  for _, owner in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if owner ~= besides then
      if lives(life[owner], kept[owner]) then
        return owner
      end
      late = late or owner
    end
  end
  return late
end

-- tell publishes to one waiter. It answers 1; 2 if that was refused, since a user
-- without rights to the channel must still be able to unlock; 3 if nobody waits.
local function tell(channel, owner)
  if not owner then
    return 3
  end
  local told = redis.pcall('PUBLISH', channel .. ':' .. owner, '0')
  return type(told) == 'table' and told.err and 2 or 1
end
