-- Heartbeat: a node reports that it is alive and its demand, and receives the number of nodes and
-- the demand of all.
--
-- KEYS: all nodes; the sums of even and of odd rounds; this node's reports for even and for odd
-- rounds; the settled nodes.
-- ARGV: the time, or nothing for the store's own; the node; 1 if it has settled, -1 if it leaves;
-- then each rule with its demand.
--
-- A node joins the first set once it has re-asserted its observations, and the last one once the
-- store has absorbed its admissions. The reply has the size and the oldest heartbeat of both.
--
-- A report counts in the next round: a round is complete before any node reads it, and all nodes
-- read the same. A sum is a negative score, so that the busiest rules come first.
if #KEYS == 0 then return end
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
end
local leaves = ARGV[3] == '-1'
local function join(key, is_member)
  -- A heartbeat of the remote past has expired.
  if is_member then redis.call('ZADD', key, leaves and 0 or now, ARGV[2]) end
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now - 5000000)
  redis.call('PEXPIRE', key, 60000)
  return redis.call('ZCARD', key), tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 0)
end
local live, oldest = join(KEYS[1], true)
local settled, oldest_settled = join(KEYS[6], ARGV[3] ~= '0')
if leaves then return end

local round = math.floor(now / 2000000)

local function score(sums, member)
  return tonumber(redis.call('ZSCORE', sums, member) or 0)
end

local function round_prefix(number)
  return string.format('%.0f ', number)
end

-- The report of this node for a round, or an empty string.
local function report_for(number, own)
  local report = redis.call('GET', own)
  return report and string.sub(report, 1, #round_prefix(number)) == round_prefix(number) and report or ''
end

local after = round + 1
local sums, own = KEYS[2 + after % 2], KEYS[4 + after % 2]
if score(sums, 'round') ~= -after then
  redis.call('DEL', sums)
  redis.call('ZADD', sums, -after, 'round', 0, 'nodes')
end
if report_for(after, own) == '' then
  redis.call('SET', own, round_prefix(after) .. table.concat(ARGV, ' ', 4), 'PX', 10000)
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
-- 64 rules, `round` and `nodes`.
return { live, oldest, settled, oldest_settled, now, round, -score(sums, 'nodes'), report_for(round, own), redis.call('ZRANGE', sums, 0, 65, 'WITHSCORES') }
