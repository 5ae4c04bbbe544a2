-- marker.lua: opens every script that changes something.
--
-- KEYS[2]  marker   private key of this request: the answer it was given
-- KEYS[3]  voided   optional: marker of an earlier request that this one undoes; KEYS[2]
--                   once more if there is none, but a script's further keys follow
-- ARGV[n]  copy     the last one, given to answer(): nil for the first copy sent,
--                   '1' for a later one, '2' to mark whichever it is
--
-- Returns  what the marker says, if it stands: the request was answered before.
--          An answer is a number, or a text that can't be read as one
-- Writes   through answer(): KEYS[2], unless this is the first copy and its
--          effect shows; KEYS[3] if given; both for 70 s, which outlive the
--          longest stall we promise to survive
-- Repeat   a late first copy finds the marker of the copy that overtook it, or
--          that of the request that undid it, and changes nothing
local told = redis.call('GET', KEYS[2])
if told then
  return tonumber(told) or told
end

local function answer(reply, copy)
  if copy then
    redis.call('SET', KEYS[2], reply, 'PX', 70000)
  end
  if KEYS[3] and KEYS[3] ~= KEYS[2] then
    redis.call('SET', KEYS[3], 0, 'PX', 70000)
  end
  return reply
end
