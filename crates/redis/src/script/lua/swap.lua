-- Writes records if all of them are as they were read. Whether it did.
-- ARGV: for each identity what it was and what it is to be (`-` for nothing, else the text behind a `=`), for how many milliseconds, and the number of
-- its sets; for each of these how many members leave (-1: all) and how many come, the names of the ones, and score and name of
-- the others.

local AT_A_TIME = 2000

local function text_of(key)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then text = '?' end
  return text and '=' .. text or '-'
end

-- Calls a command on a set with arguments from ARGV, some at a time.
local function in_portions(command, key, from, to)
  for first = from, to, AT_A_TIME do
    redis.call(command, key, unpack(ARGV, first, math.min(first + AT_A_TIME - 1, to)))
  end
end

-- Goes through all identities; `act` is told the place of each in ARGV and of its record in KEYS.
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
    local leave, come = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    local card = redis.pcall('ZCARD', KEYS[set])
    if type(card) == 'table' or leave < 0 then redis.call('DEL', KEYS[set]) end
    leave = math.max(leave, 0)
    in_portions('ZREM', KEYS[set], at + 2, at + 1 + leave)
    in_portions('ZADD', KEYS[set], at + 2 + leave, at + 1 + leave + 2 * come)
    redis.call('PEXPIRE', KEYS[set], ms)
    at = at + 2 + leave + 2 * come
  end
end)
return 1
