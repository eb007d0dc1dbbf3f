-- Reads whole records: the time, then for each identity its text and its sets.
-- ARGV: per identity the number of its sets.

local time = redis.call('TIME')
local out, index = { time[1] * 1000000 + time[2] }, 1
for i = 1, #ARGV do
  local text = redis.pcall('GET', KEYS[index])
  -- A key of another type is reported as corrupt.
  if type(text) == 'table' then text = '?' end
  out[#out + 1] = text
  for set = index + 1, index + tonumber(ARGV[i]) do
    local members = redis.pcall('ZRANGE', KEYS[set], 0, -1, 'WITHSCORES')
    out[#out + 1] = members.err and {} or members
  end
  index = index + 1 + tonumber(ARGV[i])
end
return out
