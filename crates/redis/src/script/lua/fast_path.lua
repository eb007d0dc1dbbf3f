-- Fast path of nearly every hit: one identity, hard limits that are a few numbers, an ordinary
-- record. It repeats the arithmetic of the kernels without building tables, and leaves everything
-- else to them.

local find, byte = string.find, string.byte
local GCRA, PERIODIC, TALLY = 2, 3, 8
local SPACE = 32

-- Format of integers. `%d` takes a third of the time of `%.0f`, and is as exact where a C `long`
-- has 64 bits: nearly everywhere.
local ONE, TWO = '%.0f', '%.0f@%.0f'
if fmt('%d', EXACT_MAX) == '9007199254740991' then ONE, TWO = '%d', '%d@%d' end

-- New state of each step as text.
local words = {}

-- The numbers of the state at `at`, and the start of the next one; nil if it has another form. An
-- empty state has no numbers.
local function read_state(text, at, pattern)
  if byte(text, at) == 45 and (byte(text, at + 1) or SPACE) == SPACE then return nil, nil, at + 2 end
  local _, last, first, second = find(text, pattern, at)
  if not last or (byte(text, last + 1) or SPACE) ~= SPACE then return nil, nil, nil end
  -- A fraction without digits is corrupt.
  if second == '' and byte(text, last) == 43 then return nil, nil, nil end
  return tonumber(first), second and tonumber(second) or 0, last + 2
end

-- Each decides one step: whether it allows, when its state expires, and whether it was rolled
-- forward. Returns nil if the fast path does not support it.

-- A bucket whose interval is a whole number of microseconds: the common case.
local function decide_whole_bucket(l, us, _, cost, now, index)
  local tat_max, rolled = l.full + now, false
  if us then
    -- The clock may have gone back.
    if us >= tat_max + l.slack then return nil end
    if us <= now then us, rolled = now, true end
  else
    us = now
  end
  if cost > l.capacity then return nil end
  us = us + cost * l.micros
  if us > tat_max then return false, 0, rolled end
  words[index] = fmt(ONE, us)
  return true, us, rolled
end

local function decide_bucket(l, us, frac, cost, now, index)
  local rolled = false
  if us then
    if us >= now + l.full + l.slack or frac >= l.units then return nil end
    if us < now or us == now and frac == 0 then us, frac, rolled = now, 0, true end
  else
    us, frac = now, 0
  end
  if cost > l.capacity then return nil end
  us, frac = later(l.units, us, frac, muldiv(cost, l.micros, l.units))
  if is_later(us, frac, l.full + now, l.full_frac) then return false, 0, rolled end
  words[index] = tat_text(us, frac)
  return true, ceil_of(us, frac), rolled
end

local function decide_window(l, level, anchor, cost, now, index)
  local length, capacity, rolled = l.length, l.capacity, false
  local start = now - fmod(now, length)
  if level then
    if level > capacity or anchor > now + l.slack or fmod(anchor, length) ~= 0 then return nil end
    if start > anchor then level, anchor, rolled = capacity, start, true end
  else
    level, anchor = capacity, start
  end
  if cost > capacity then return nil end
  if level < cost then return false, 0, rolled end
  words[index] = fmt(TWO, level - cost, anchor)
  return true, saturate(anchor + length), rolled
end

-- A tally counts denied hits too.
local function decide_tally(l, count, start, cost, now, index)
  if not count or now >= saturate(start + l.period) then
    count, start = 0, aligned(now, l.period)
  elseif start > now + l.slack or count > EXACT_MAX then
    return nil
  end
  words[index] = fmt(TWO, saturate(count + cost), start)
  return cost <= l.limit - count, saturate(start + l.period), true
end

-- Whether the fast path supports all limits; if so, sets the decision function of each step.
local function has_fast_path(params)
  for index = 1, #params do
    local step = params[index]
    local l, kind = step.limit, step.kind
    if step.boost or not step.enforced or l.starts_short then return false end
    if kind == GCRA and l.variant == BUCKET then
      step.decide, step.pattern = decide_bucket, '^(%d+)%+?(%d*)'
      if l.units == 1 then step.decide, step.pattern = decide_whole_bucket, '^(%d+)' end
    elseif kind == PERIODIC and l.variant == WINDOW and l.align == 0 then
      step.decide, step.pattern = decide_window, '^(%d+)@(%d+)'
    elseif kind == TALLY and #params == 1 then
      step.decide, step.pattern = decide_tally, '^(%d+)@(%d+)'
    else
      return false
    end
  end
  return true
end

local function joined(prefix, count)
  if count == 1 then return prefix .. words[1] end
  if count == 2 then return prefix .. words[1] .. ' ' .. words[2] end
  if count == 3 then return prefix .. words[1] .. ' ' .. words[2] .. ' ' .. words[3] end
  return prefix .. table.concat(words, ' ', 1, count)
end

-- Decides, writes, and reports in `out`. Returns whether it could.
local function try_fast_path(params, key, cost, now, clock_is_given, out)
  local text = redis.pcall('GET', key)
  local at, count = 1, #params
  if text then
    -- Another fingerprint, or an epoch above 0.
    if type(text) ~= 'string' or find(text, params.prefix, 1, true) ~= 1 then return false end
    at = #params.prefix + 1
  end
  local allowed, ends, rolled = true, 0, false
  local counts = params[1].kind == TALLY
  for index = 1, count do
    local step, one, two = params[index], nil, nil
    if text then
      one, two, at = read_state(text, at, step.pattern)
      if not at then return false end
    end
    local passes, expires, was_rolled = step.decide(step.limit, one, two, cost, now, index)
    if passes == nil then return false end
    if not passes then allowed = false end
    if was_rolled then rolled = true end
    if expires > ends then ends = expires end
  end
  -- There are reservations or leases behind the states, or a denied request has to write rolled
  -- states.
  if text and at ~= #text + 2 or not allowed and rolled and not counts then return false end
  if allowed or counts then
    local ms = GIVEN_CLOCK_TTL_MS
    if not clock_is_given then ms = divide_up(max(ends - now, 1), 1000) + TTL_SLACK_MS end
    call('SET', key, joined(params.prefix, count), 'PX', fmt(ONE, ms))
  end
  local index = #out
  out[index + 1], out[index + 2], out[index + 3] = allowed and 1 or 0, 1, text
  return true
end
