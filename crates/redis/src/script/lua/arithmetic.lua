-- Exact integer arithmetic in doubles, like `core/arithmetic.rs` and `core/quota.rs`: every number
-- stays below 2^53. Scripts are joined in this order: arithmetic, gcra, periodic, log, slots,
-- record, call, and fast_path and decide, or lease.

local call, fmt = redis.call, string.format
local fmod, floor, max, min = math.fmod, math.floor, math.max, math.min
local match, unpack_bytes = string.match, struct.unpack

local EXACT_MAX = 9007199254740991
local LIMIT = 9007199254740992
local CLOCK_SLACK = 60000000

local function saturate(n)
  if n > EXACT_MAX then return EXACT_MAX end
  return n
end

-- `part * b / divisor` for a part below the divisor, digit by digit of `b`.
-- `core/tests/double_twin.rs` proves each step.
local function part_times(part, b, divisor)
  local bits = 1
  while bits < 26 and divisor * 2 ^ (bits + 2) <= LIMIT do bits = bits + 1 end
  local narrow = divisor * 4 > LIMIT
  local base, quotient, rest, left = 2 ^ bits, 0, 0, b
  for index = math.ceil(53 / bits) - 1, 0, -1 do
    local weight = 2 ^ (bits * index)
    local lower = fmod(left, weight)
    local digit = (left - lower) / weight
    left = lower
    local more
    if narrow then
      more, rest = 0, rest * 2
      if rest >= divisor then more, rest = 1, rest - divisor end
      if digit == 1 then
        local room = divisor - part
        if rest >= room then
          more, rest = more + 1, rest - room
        else
          rest = rest + part
        end
      end
    else
      local sum = rest * base + digit * part
      rest = fmod(sum, divisor)
      more = (sum - rest) / divisor
    end
    quotient = quotient * base + more
  end
  return quotient, rest
end

-- `a * b / divisor` and its remainder; saturates with remainder 0.
local function muldiv(a, b, divisor)
  local product = a * b
  if product < LIMIT then
    local rest = fmod(product, divisor)
    return (product - rest) / divisor, rest
  end
  local part = fmod(a, divisor)
  local wholes = (a - part) / divisor
  if wholes * b >= LIMIT then return EXACT_MAX, 0 end
  local first = wholes * b
  local second, rest = part_times(part, b, divisor)
  if second > EXACT_MAX - first then return EXACT_MAX, 0 end
  return first + second, rest
end

local function muldiv_up(a, b, divisor)
  local quotient, rest = muldiv(a, b, divisor)
  if rest == 0 then return quotient end
  return min(quotient + 1, EXACT_MAX)
end

local function divide(a, b)
  return (a - fmod(a, b)) / b
end

local function divide_up(a, b)
  local rest = fmod(a, b)
  if rest == 0 then return a / b end
  return (a - rest) / b + 1
end

-- A theoretical arrival time (TAT) is two numbers: whole microseconds, and a fraction in `units` of
-- the rate.

local function is_later(us, frac, than_us, than_frac)
  return us > than_us or us == than_us and frac > than_frac
end

local function later(units, us, frac, by_us, by_frac)
  us = us + by_us
  local room = units - by_frac
  if frac >= room then
    us, frac = us + 1, frac - room
  else
    frac = frac + by_frac
  end
  if us > EXACT_MAX then return EXACT_MAX, 0 end
  return us, frac
end

local function earlier(units, us, frac, by_us, by_frac)
  if not is_later(us, frac, by_us, by_frac) then return 0, 0 end
  if frac >= by_frac then return us - by_us, frac - by_frac end
  return us - by_us - 1, frac + (units - by_frac)
end

local function ceil_of(us, frac)
  if frac == 0 then return us end
  return saturate(us + 1)
end

-- Whole units that a span yields.
local function units_in(units, micros, us, frac)
  local quotient, rest = muldiv(us, units, micros)
  if quotient == EXACT_MAX then return EXACT_MAX end
  -- Both are below 2^53; their sum is formed only as far as it is needed.
  if rest < micros - frac then return quotient end
  local over = rest - micros + frac
  return saturate(quotient + 1 + divide(over, micros))
end

local function forgotten_at(seen, full, forget_after)
  local forgotten = saturate(seen + forget_after)
  if full < forgotten then return forgotten end
  return saturate(full + forget_after)
end

local function slack_of(span)
  return max(span, CLOCK_SLACK)
end

-- A TAT as text.
local function tat_text(us, frac)
  if frac == 0 then return fmt('%.0f', us) end
  return fmt('%.0f+%.0f', us, frac)
end

-- `pass` returns a time, or one of these.
local LATER, NEVER = false, nil

local function aligned(now, length)
  return now - fmod(now, length)
end

-- Variants of a kernel.
local BUCKET, QUEUE, SMOOTH, WINDOW, CYCLE = 0, 1, 2, 1, 2

-- Members of a set that are read at once.
local CHUNK = 64

-- Kernels, with the operations of `core/algorithm/mod.rs`. Creating functions takes longer than a
-- decision, so a kernel is created for the first limit that needs it.
local makers = {}
local kernels = setmetatable({}, {
  __index = function(made, kind)
    made[kind] = makers[kind]()
    return made[kind]
  end,
})

-- Decoder of stored text, which may be corrupt. Created when a record is read, like the kernels.
makers.codec = function()
  -- `unreadable` is set when a sorted set holds members or scores that no node writes. Readers
  -- return an arbitrary valid number then and never raise: `decide.lua` reads everything a request
  -- needs before it writes, and defers such a request to the node.
  local codec = { unreadable = false }
  local FIELDS = { e = 'extra', s = 'seen', h = 'hole' }

  -- Number of a record; nil if it is missing or not exact.
  local function exact(text)
    local n = tonumber(text)
    return n and n <= EXACT_MAX and n or nil
  end
  codec.exact = exact

  function codec.mark(text)
    local us = match(text, '^%d+$')
    if us then return exact(us), 0 end
    local whole, parts = match(text, '^(%d+)%+(%d+)$')
    local frac = exact(parts)
    return frac and exact(whole), frac
  end

  -- Reads named fields such as `,s12,h34` into `s`; nil if one is unknown, duplicate or not exact.
  function codec.fields(s, text, letters)
    while text ~= '' do
      local letter, digits, rest = match(text, '^,(%l)(%d+)(.*)$')
      local field = letter and string.find(letters, letter, 1, true) and FIELDS[letter]
      local value = field and exact(digits)
      if not value or s[field] then return nil end
      s[field], text = value, rest
    end
    return s
  end

  -- Clamps `n`.
  function codec.within(n, least, most)
    if n >= least and n <= most then return n end
    codec.unreadable = true
    return max(least, min(n, most))
  end

  -- Score of a member: a timestamp.
  function codec.moment(score)
    local moment = exact(score)
    if moment and moment >= 0 and floor(moment) == moment then return moment end
    codec.unreadable = true
    return 0
  end

  -- Number of members of a sorted set; nil for another type.
  function codec.members(key)
    local count = redis.pcall('ZCARD', key)
    return type(count) == 'number' and count or nil
  end

  return codec
end
