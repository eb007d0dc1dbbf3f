-- The quick way, which nearly every hit goes: one identity, hard limits that are a few numbers, a record with nothing out of the ordinary. It has no
-- answer of its own: it asks what the kernels ask, without making a table of anything, and leaves whatever it does not know to them.

local find, byte = string.find, string.byte
local METER, STEPS, TALLY = 2, 3, 8
local SPACE = 32

-- A whole number as text. `%d` takes a third of the time of `%.0f`, and is as exact where a C `long` has 64 bits: nearly everywhere.
local ONE, TWO = '%.0f', '%.0f@%.0f'
if fmt('%d', EXACT_MAX) == '9007199254740991' then ONE, TWO = '%d', '%d@%d' end

-- What is to be written of each step, and until when it is needed.
local words = {}

-- The numbers of the cell at `at`, and where the next one begins; nothing if it is of another form. A new one has none.
local function cell(text, at, pattern)
  if byte(text, at) == 45 and (byte(text, at + 1) or SPACE) == SPACE then return nil, nil, at + 2 end
  local _, last, first, second = find(text, pattern, at)
  if not last or (byte(text, last + 1) or SPACE) ~= SPACE then return nil, nil, nil end
  -- A fraction without digits.
  if second == '' and byte(text, last) == 43 then return nil, nil, nil end
  return tonumber(first), second and tonumber(second) or 0, last + 2
end

-- Each asks one step: whether it passes, until when its state is needed, and whether it was rolled forward. Nothing if it is not known here.

-- A bucket whose interval is a whole number of microseconds, as most are.
local function ask_whole_bucket(l, us, _, cost, now, place)
  local brim, rolled = l.full + now, false
  if us then
    -- Perhaps of a clock that was set back.
    if us >= brim + l.slack then return nil end
    if us <= now then us, rolled = now, true end
  else
    us = now
  end
  if cost > l.capacity then return nil end
  us = us + cost * l.micros
  if us > brim then return false, 0, rolled end
  words[place] = fmt(ONE, us)
  return true, us, rolled
end

local function ask_bucket(l, us, frac, cost, now, place)
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
  words[place] = mark_text(us, frac)
  return true, ceil_of(us, frac), rolled
end

local function ask_window(l, level, anchor, cost, now, place)
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
  words[place] = fmt(TWO, level - cost, anchor)
  return true, cut(anchor + length), rolled
end

-- Counts whatever it says.
local function ask_tally(l, count, start, cost, now, place)
  if not count or now >= cut(start + l.period) then
    count, start = 0, aligned(now, l.period)
  elseif start > now + l.slack or count > EXACT_MAX then
    return nil
  end
  words[place] = fmt(TWO, cut(count + cost), start)
  return cost <= l.limit - count, cut(start + l.period), true
end

-- Whether all limits of a sheet are known here; if so each step knows how it is asked.
local function is_plain(sheet)
  for place = 1, #sheet do
    local step = sheet[place]
    local l, kind = step.limit, step.kind
    if step.boost or not step.enforced or l.starts_short then return false end
    if kind == METER and l.face == BUCKET then
      step.ask, step.pattern = ask_bucket, '^(%d+)%+?(%d*)'
      if l.units == 1 then step.ask, step.pattern = ask_whole_bucket, '^(%d+)' end
    elseif kind == STEPS and l.face == WINDOW and l.align == 0 then
      step.ask, step.pattern = ask_window, '^(%d+)@(%d+)'
    elseif kind == TALLY and #sheet == 1 then
      step.ask, step.pattern = ask_tally, '^(%d+)@(%d+)'
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

-- Asks for `cost`, writes, and tells in `out`. Whether it did.
local function goes_quickly(sheet, key, cost, now, clock_is_given, out)
  local text = redis.pcall('GET', key)
  local at, count = 1, #sheet
  if text then
    -- Another fingerprint, or something was given back already.
    if type(text) ~= 'string' or find(text, sheet.prefix, 1, true) ~= 1 then return false end
    at = #sheet.prefix + 1
  end
  local allowed, ends, rolled = true, 0, false
  local counts = sheet[1].kind == TALLY
  for place = 1, count do
    local step, one, two = sheet[place], nil, nil
    if text then
      one, two, at = cell(text, at, step.pattern)
      if not at then return false end
    end
    local passes, until_then, was_rolled = step.ask(step.limit, one, two, cost, now, place)
    if passes == nil then return false end
    if not passes then allowed = false end
    if was_rolled then rolled = true end
    if until_then > ends then ends = until_then end
  end
  -- Something is pending behind the cells; or the states that others left have to be written though nothing is charged.
  if text and at ~= #text + 2 or not allowed and rolled and not counts then return false end
  if allowed or counts then
    local ms = GIVEN_CLOCK_MS
    if not clock_is_given then ms = max(divide_up(max(ends - now, 1), 1000), 1) end
    call('SET', key, joined(sheet.prefix, count), 'PX', fmt(ONE, ms))
  end
  local place = #out
  out[place + 1], out[place + 2], out[place + 3] = allowed and 1 or 0, 1, text
  return true
end
