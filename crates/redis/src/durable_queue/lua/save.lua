-- Replaces an entry, unless it has changed.
-- KEYS: entry, queue, bytes of the queue, counts of groups, total bytes, three lists, due, sequence,
--       stream, claims
-- ARGV: id, name of the queue, group, expected version, version, list (3: delete), bytes, time,
--       due or '', value, whether there is a response, response, whether the body goes, ttl in ms
-- Returns 1 if it was replaced, or had been by the same call; otherwise 0.
local entry, queue, queue_bytes, groups, total = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local due, sequence, stream, claims = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local id, name, group, list, bytes = ARGV[1], ARGV[2], ARGV[3], ARGV[6], tonumber(ARGV[7])
local found = redis.call('HMGET', entry, 'version', 'list', 'bytes')
if found[1] ~= ARGV[4] then
  -- The reply to the same call may have been lost.
  if found[1] and found[1] == ARGV[5] and redis.call('HGET', entry, 'value') == ARGV[10] then return 1 end
  return 0
end
local old_list, old_bytes = found[2], tonumber(found[3])
if list == '3' then
  redis.call('DEL', entry)
  bytes = 0
else
  redis.call('HSET', entry, 'version', ARGV[5], 'list', list, 'bytes', bytes, 'value', ARGV[10])
  if ARGV[11] == '1' then redis.call('HSET', entry, 'response', ARGV[12]) end
  if ARGV[13] == '1' then redis.call('HDEL', entry, 'body') end
end
redis.call('INCRBY', total, bytes - old_bytes)
if old_list == '0' then redis.call('DECRBY', queue_bytes, old_bytes) end
if list == '0' then redis.call('INCRBY', queue_bytes, bytes) end
if old_list == '0' and list ~= '0' then
  redis.call('ZREM', queue, id)
  if redis.call('HINCRBY', groups, group, -1) <= 0 then redis.call('HDEL', groups, group) end
end
if old_list ~= '0' and list == '0' then
  redis.call('ZADD', queue, redis.call('INCR', sequence), id)
  redis.call('HINCRBY', groups, group, 1)
  if redis.call('HEXISTS', claims, name) == 0 then
    redis.call('HSET', claims, name, redis.call('XADD', stream, '*', 'queue', name))
  end
end
if old_list ~= list then redis.call('ZREM', KEYS[6 + tonumber(old_list)], id) end
if list ~= '3' then redis.call('ZADD', KEYS[6 + tonumber(list)], ARGV[8], id) end
if ARGV[9] == '' or list == '3' then
  redis.call('ZREM', due, id)
else
  redis.call('ZADD', due, ARGV[9], id)
end
local ttl = tonumber(ARGV[14])
for _, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left ~= -2 and left < ttl then redis.call('PEXPIRE', key, ttl) end
end
return 1
