-- leave.lua: give up a place in the queue of a fair lock.
--
-- KEYS[1]  lock     hash: owner -> number of holds; absent = free
-- KEYS[2]  marker   see marker.lua
-- KEYS[4]  queue, timeout, alive: see queue.lua
-- ARGV[1]  owner    <client id>:<owner id>
-- ARGV[2]  channel  of the lock; each waiter's is <channel>:<owner>
-- ARGV[3]  wait     milliseconds that its place added to the queue
-- ARGV[4]  copy     see marker.lua
--
-- Returns  1  it has no place any more, and who is next was told
--          2  the same, but the notification was refused: waiters poll
--          3  it has no place any more, and nobody had to be told
--          0  it had none
-- Writes   KEYS[4], KEYS[5], KEYS[6]; those behind it move up by wait
-- Publishes  '0' to who is next, if the lock is free and this was the first
-- Repeat   safe: a further copy finds no place, or, when the owner has a new one,
--          its marker
local lock, owner, channel, wait, copy = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]

local place = redis.call('ZSCORE', timeout, owner)
local first = redis.call('LINDEX', queue, 0) == owner
local next = first and redis.call('EXISTS', lock) == 0 and next_up(owner) or nil
local gone = redis.call('LREM', queue, 1, owner)
if not place and gone == 0 then
  return answer(0, copy)
end
redis.call('ZREM', timeout, owner)
redis.call('ZREM', alive, owner)
if place then
  shift(redis.call('ZRANGEBYSCORE', timeout, place, '+inf', 'WITHSCORES'), -wait)
end
return answer(tell(channel, next), copy)
