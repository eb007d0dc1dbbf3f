-- Continues claims of a consumer.
-- KEYS: stream; ARGV: group of consumers, consumer, ids of claims
-- Returns 1 for each claim that it has, and 0 for each that another consumer has by now.
local replies = {}
for index = 3, #ARGV do
  local pending = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[index], ARGV[index], 1)
  local is_own = pending[1] and pending[1][2] == ARGV[2]
  if is_own then redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[index], 'JUSTID') end
  replies[#replies + 1] = is_own and 1 or 0
end
return replies
