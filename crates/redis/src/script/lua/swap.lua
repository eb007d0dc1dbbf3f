-- Compare-and-swap: writes records if none has changed since it was read. Returns whether it did.
-- ARGV: per identity the expected and the new text (`-` for none, else `=` and the text), its
-- lifetime in milliseconds and the number of its sets; per set the numbers of members to remove
-- (-1: all) and to add, the names of the former, and score and name of the latter.

local CHUNK = 2000

local function text_of(key)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then text = '?' end
  return text and '=' .. text or '-'
end

-- Runs a command with arguments from ARGV, in chunks.
local function in_chunks(command, key, from, to)
  for first = from, to, CHUNK do
    redis.call(command, key, unpack(ARGV, first, math.min(first + CHUNK - 1, to)))
  end
end

-- Calls `act` for each identity, with its index in ARGV and that of its record in KEYS.
local function each(act)
  local at, key = 1, 1
  while at <= #ARGV do
    act(at, key)
    local sets = tonumber(ARGV[at + 3])
    at = at + 4
    for _ = 1, sets do at = at + 2 + math.max(tonumber(ARGV[at]), 0) + 2 * tonumber(ARGV[at + 1]) end
    key = key + 1 + sets
  end
end

local same = true
each(function(at, key)
  if text_of(KEYS[key]) ~= ARGV[at] then same = false end
end)
if not same then return 0 end

each(function(at, key)
  local text, ms, sets = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  if text == '-' then
    redis.call('DEL', KEYS[key])
  else
    redis.call('SET', KEYS[key], string.sub(text, 2), 'PX', ms)
  end
  at = at + 4
  for set = key + 1, key + sets do
    local removed, added = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    local card = redis.pcall('ZCARD', KEYS[set])
    if type(card) == 'table' or removed < 0 then redis.call('DEL', KEYS[set]) end
    removed = math.max(removed, 0)
    in_chunks('ZREM', KEYS[set], at + 2, at + 1 + removed)
    in_chunks('ZADD', KEYS[set], at + 2 + removed, at + 1 + removed + 2 * added)
    redis.call('PEXPIRE', KEYS[set], ms)
    at = at + 2 + removed + 2 * added
  end
end)
return 1
