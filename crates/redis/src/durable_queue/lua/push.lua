-- Adds an entry to the end of its queue.
-- KEYS: entry, queue, bytes of the queue, counts of groups, total bytes, list, sequence, stream, claims
-- ARGV: id, name of the queue, group, version, bytes, time, value, body, ttl in ms,
--       and the bounds: count of the group, count and bytes of the queue, total bytes
-- Returns {1, entries before it}, or {0, number of the bound}.
local entry, queue, queue_bytes, groups, total, list, sequence, stream, claims = unpack(KEYS)
local id, name, group, bytes = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5])
if redis.call('EXISTS', entry) == 1 then
  return {1, redis.call('ZRANK', queue, id) or 0}
end
if tonumber(redis.call('HGET', groups, group) or '0') >= tonumber(ARGV[10]) then return {0, 0} end
if redis.call('ZCARD', queue) >= tonumber(ARGV[11]) then return {0, 1} end
if tonumber(redis.call('GET', queue_bytes) or '0') + bytes > tonumber(ARGV[12]) then return {0, 2} end
if tonumber(redis.call('GET', total) or '0') + bytes > tonumber(ARGV[13]) then return {0, 3} end
local number = redis.call('INCR', sequence)
redis.call('HSET', entry, 'version', ARGV[4], 'list', '0', 'bytes', ARGV[5], 'value', ARGV[7], 'body', ARGV[8])
redis.call('ZADD', queue, number, id)
redis.call('INCRBY', queue_bytes, bytes)
redis.call('HINCRBY', groups, group, 1)
redis.call('INCRBY', total, bytes)
redis.call('ZADD', list, ARGV[6], id)
if redis.call('HEXISTS', claims, name) == 0 then
  redis.call('HSET', claims, name, redis.call('XADD', stream, '*', 'queue', name))
end
local ttl = tonumber(ARGV[9])
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
end
return {1, redis.call('ZRANK', queue, id)}
