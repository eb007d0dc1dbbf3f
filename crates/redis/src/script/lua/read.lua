-- Records with all that lies in the sets beside them, for whoever decides elsewhere: the time, then for each identity its text and its sets.
-- ARGV: for each identity the number of its sets.

local time = redis.call('TIME')
local out, place = { time[1] * 1000000 + time[2] }, 1
for i = 1, #ARGV do
  local text = redis.pcall('GET', KEYS[place])
  -- Another type: no record of ours, and the node is to know it.
  if type(text) == 'table' then text = '?' end
  out[#out + 1] = text
  for set = place + 1, place + tonumber(ARGV[i]) do
    local members = redis.pcall('ZRANGE', KEYS[set], 0, -1, 'WITHSCORES')
    out[#out + 1] = members.err and {} or members
  end
  place = place + 1 + tonumber(ARGV[i])
end
return out
