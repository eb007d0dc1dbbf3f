-- Gives up a queue, if it is empty or in any case.
-- KEYS: queue, stream, claims
-- ARGV: name of the queue, id of the claim, group of consumers, whether in any case, ttl in ms
-- Returns 1 if this consumer has it no more, otherwise 0.
local queue, stream, claims = KEYS[1], KEYS[2], KEYS[3]
local name, claim, group = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', claims, name) ~= claim then return 1 end
local is_empty = redis.call('ZCARD', queue) == 0
if not is_empty and ARGV[4] == '0' then return 0 end
redis.call('XACK', stream, group, claim)
redis.call('XDEL', stream, claim)
if is_empty then
  redis.call('HDEL', claims, name)
else
  redis.call('HSET', claims, name, redis.call('XADD', stream, '*', 'queue', name))
  redis.call('PEXPIRE', stream, ARGV[5])
  redis.call('PEXPIRE', claims, ARGV[5])
end
return 1
