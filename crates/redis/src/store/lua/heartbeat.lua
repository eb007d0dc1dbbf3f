-- A node says that it is there, and what it is asked for; and hears how many there are, and what all are asked for.
--
-- KEYS: all nodes; the sums of even and of odd rounds; what this node said for even and for odd rounds; the nodes that have settled.
-- ARGV: the time, or nothing if it is the store's own; the node; 1 if it has settled; and then each rule with its demand.
--
-- A node joins the first set once it has re-asserted what it observed, and the last one once the
-- store has absorbed what it admitted without it. Of both the reply has the number of nodes and the
-- oldest heartbeat.
--
-- What is said now counts in the next round: all of a round is there before anybody hears of it, and everybody hears the same. A sum is kept as a negative
-- score, so that the busiest come first.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local function join(key, is_in)
  if is_in then redis.call('ZADD', key, now, ARGV[2]) end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - 5000000)
  redis.call('PEXPIRE', key, 60000)
  return redis.call('ZCARD', key), tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 0)
end
local live, oldest = join(KEYS[1], true)
local settled, oldest_settled = join(KEYS[6], ARGV[3] == '1')

local round = math.floor(now / 2000000)

local function score(sums, member)
  return tonumber(redis.call('ZSCORE', sums, member) or 0)
end

local function mark(number)
  return string.format('%.0f ', number)
end

-- What this node has said for a round, if it has.
local function said_for(number, own)
  local said = redis.call('GET', own)
  return said and string.sub(said, 1, #mark(number)) == mark(number) and said or ''
end

local after = round + 1
local sums, own = KEYS[2 + after % 2], KEYS[4 + after % 2]
if score(sums, 'round') ~= -after then
  redis.call('DEL', sums)
  redis.call('ZADD', sums, -after, 'round', 0, 'nodes')
end
if said_for(after, own) == '' then
  redis.call('SET', own, mark(after) .. table.concat(ARGV, ' ', 4), 'PX', 10000)
  redis.call('ZADD', sums, score(sums, 'nodes') - 1, 'nodes')
  for i = 4, #ARGV, 2 do
    redis.call('ZADD', sums, score(sums, ARGV[i]) - ARGV[i + 1], ARGV[i])
  end
end
redis.call('PEXPIRE', sums, 10000)

sums, own = KEYS[2 + round % 2], KEYS[4 + round % 2]
if score(sums, 'round') ~= -round then
  return { live, oldest, settled, oldest_settled, now, round, 0, '', {} }
end
-- Two of them are no rules.
return { live, oldest, settled, oldest_settled, now, round, -score(sums, 'nodes'), said_for(round, own), redis.call('ZRANGE', sums, 0, 65, 'WITHSCORES') }
