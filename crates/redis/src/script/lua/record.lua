-- Sheets, which tell of the limits, and records, which tell of one identity: `core/record` says how both are written.

local function read_sheet(text)
  local fingerprint, count, at = unpack_bytes('<c8B', text)
  -- What a record begins with as long as nothing was given back.
  local sheet = { fingerprint = fingerprint, prefix = fingerprint .. '.0 ', sets = 0 }
  for place = 1, count do
    local flags, kind
    flags, kind, at = unpack_bytes('<BB', text, at)
    local step = { enforced = flags % 2 == 1, kind = kind, kernel = kernels[kind] }
    step.limit, at = step.kernel.sheet(text, at)
    if step.kernel.has_set then sheet.sets = sheet.sets + 1 end
    if flags >= 2 then
      kind, at = unpack_bytes('<B', text, at)
      step.boost_kernel = kernels[kind]
      step.boost, at = step.boost_kernel.sheet(text, at)
      if step.boost_kernel.has_set then sheet.sets = sheet.sets + 1 end
    end
    if not step.enforced then sheet.has_shadow = true end
    if step.limit.denied then sheet.logs_denied = true end
    sheet[place] = step
  end
  return sheet
end

-- The states of a record, one for each limit and each boosted one, in `plain` and `boost`; nothing if it cannot be read.
local function read_cells(r, cells)
  local sheet, place, set = r.sheet, 0, r.first_set
  local plain, boost = {}, {}
  for word in string.gmatch(cells, '[^ ]+') do
    local step = sheet[place + 1]
    if not step then return false end
    place = place + 1
    local first, second = word, nil
    if step.boost then
      first, second = match(word, '^([^/]+)/([^/]+)$')
      if not first then return false end
    end
    if first ~= '-' then
      plain[place] = step.kernel.read(step.limit, first, KEYS[set])
      if not plain[place] then return false end
    end
    if step.kernel.has_set then set = set + 1 end
    if second and second ~= '-' then
      boost[place] = step.boost_kernel.read(step.boost, second, KEYS[set])
      if not boost[place] then return false end
    end
    if step.boost and step.boost_kernel.has_set then set = set + 1 end
  end
  -- Cells are separated by one space.
  if place ~= #sheet or string.find(cells, '^ ') or string.find(cells, ' $') or string.find(cells, '  ', 1, true) then
    return false
  end
  r.plain, r.boost = plain, boost
  return true
end

-- What nodes hold, by their ends: `core/lease`. Of each cell hits need no more than how much and until when; `word` is the whole of it.

local TTL_MAX = 600000000

local function read_leases(text)
  local leases, length, exact = {}, -1, kernels.codec.exact
  for word in string.gmatch(text, '[^,]+') do
    local node, serial, amount, weight, ends = match(word, '^(%x+):(%d+):(%d+):(%d+):(%d+)$')
    amount, ends, serial, weight = exact(amount), exact(ends), exact(serial), exact(weight)
    if not amount or not ends or not serial or not weight or #node ~= 16 then return nil end
    leases[#leases + 1] = { word = word, amount = amount, ends = ends }
    length = length + #word + 1
  end
  return length == #text and leases or nil
end

local function leases_text(leases)
  if not leases[2] then return ' #' .. leases[1].word end
  local words = {}
  for i = 1, #leases do words[i] = leases[i].word end
  return ' #' .. table.concat(words, ',')
end

-- What all nodes together may still hold.
local function outstanding(leases, now)
  local held = 0
  for i = #leases, 1, -1 do
    if leases[i].ends <= now then break end
    held = cut(held + leases[i].amount)
  end
  return held
end

-- No less is used than nodes hold, or may have used until their leases ran out.
local function keep_leased(r, now)
  local leases = r.leases
  if not leases or #leases == 0 then return end
  local held = outstanding(leases, now)
  for place = 1, #r.sheet do
    local step = r.sheet[place]
    if step.kernel.keep_leased then
      step.kernel.keep_leased(step.limit, r.plain[place], leases, held, now)
    end
    if step.boost and step.boost_kernel.keep_leased then
      step.boost_kernel.keep_leased(step.boost, r.boost[place], leases, held, now)
    end
  end
end

-- Drops what has run out.
local function bury(leases, now)
  while leases[1] and leases[1].ends <= now do table.remove(leases, 1) end
end

-- Whether anything in the record is of a time that only the long way understands.
local function needs_long_way(r, now)
  local leases = r.leases
  if leases and leases[#leases].ends > now + TTL_MAX + CLOCK_SLACK then return true end
  if r.changes_at and (now >= r.changes_at or now < r.stays_from) then return true end
  for place = 1, #r.sheet do
    local step, plain, boost = r.sheet[place], r.plain[place], r.boost[place]
    if plain and step.kernel.is_set_back(step.limit, plain, now) then return true end
    if boost and step.boost_kernel.is_set_back(step.boost, boost, now) then return true end
  end
  return false
end

-- The record of an identity as it lies in the store.
local function load_record(key_place, sheet, now)
  local key = KEYS[key_place]
  local text = redis.pcall('GET', key)
  -- Another type: no record of ours, and the node is to know it.
  if type(text) == 'table' then text = '?' end
  local r = { key = key, first_set = key_place + 1, sheet = sheet, text = text, epoch = 0, holds = '' }
  r.plain, r.boost = {}, {}
  if not text then return r end
  -- Records of other limits and corrupt ones are deferred to the node.
  r.long = true
  local fingerprint, epoch, rest = match(text, '^(%x+)%.(%d+) (.*)$')
  local exact = kernels.codec.exact
  epoch = exact(epoch)
  if not epoch or fingerprint ~= sheet.fingerprint then return r end
  local pending = string.find(rest, ' @', 1, true)
  if pending then
    r.holds = string.sub(rest, pending)
    rest = string.sub(rest, 1, pending - 1)
    local changes_at, from, needed = match(r.holds, '^ @(%d+),(%d+),(%d+),%x+$')
    r.changes_at, r.stays_from, r.needed = exact(changes_at), exact(from), exact(needed)
    if not r.changes_at or not r.stays_from or not r.needed then return r end
  end
  local leased = string.find(rest, ' #', 1, true)
  if leased then
    r.leases = read_leases(string.sub(rest, leased + 2))
    rest = string.sub(rest, 1, leased - 1)
  end
  if leased and not r.leases or not read_cells(r, rest) then return r end
  r.epoch, r.known = epoch, true
  r.long = needs_long_way(r, now)
  return r
end

-- One state rolled forward to `now`, or a fresh one; and whether that is another than was kept.
local function open(kernel, l, s, now, key)
  if s then
    local changed = kernel.settle(l, s, now)
    if kernel.expires(l, s) > now then return s, changed end
    s = kernel.fresh(l, now, key)
    s.is_new = true
    return s, true
  end
  s = kernel.fresh(l, now, key)
  s.is_new = true
  -- Where new is less than full, to have been seen is something to remember.
  return s, l.starts_short == true
end

local function open_record(r, now)
  r.is_open = true
  local set = r.first_set
  for place = 1, #r.sheet do
    local step, changed = r.sheet[place], false
    r.plain[place], changed = open(step.kernel, step.limit, r.plain[place], now, KEYS[set])
    if changed then
      r.rolled = true
      -- What left a set has left it: the record has to know.
      if step.kernel.has_set then r.touched = true end
    end
    if step.kernel.has_set then set = set + 1 end
    if step.boost then
      r.boost[place], changed = open(step.boost_kernel, step.boost, r.boost[place], now, KEYS[set])
      if changed then
        r.rolled = true
        if step.boost_kernel.has_set then r.touched = true end
      end
      if step.boost_kernel.has_set then set = set + 1 end
    end
  end
  if r.leases then
    keep_leased(r, now)
    bury(r.leases, now)
  end
end

-- No earlier than from when on nothing that is leased makes a difference: as if all of it were used in the last moment.
local function leased_until(sheet, leases)
  local last = leases[#leases].ends
  local held, ends = outstanding(leases, 0), last
  for place = 1, #sheet do
    local step = sheet[place]
    local time_of = step.kernel.time_of
    if time_of then ends = max(ends, cut(last + ceil_of(time_of(step.limit, held)))) end
    time_of = step.boost and step.boost_kernel.time_of
    if time_of then ends = max(ends, cut(last + ceil_of(time_of(step.boost, held)))) end
  end
  return ends
end

-- Drops what is as good as new; when the rest is.
local function close(kernel, l, s, now)
  local ends = kernel.expires(l, s)
  if ends > now then
    s.is_new = false
    return s, ends
  end
  s = kernel.fresh(l, now, s.key)
  s.is_new = true
  return s, 0
end

-- The record as text, after its states were touched.
local function close_record(r, now)
  local sheet, words, ends, any = r.sheet, {}, 0, false
  for place = 1, #sheet do
    local step, word = sheet[place], '-'
    local plain, until_then = close(step.kernel, step.limit, r.plain[place], now)
    r.plain[place], ends = plain, max(ends, until_then)
    if not plain.is_new then word, any = step.kernel.write(step.limit, plain), true end
    if step.boost then
      local boost, second = nil, '-'
      boost, until_then = close(step.boost_kernel, step.boost, r.boost[place], now)
      r.boost[place], ends = boost, max(ends, until_then)
      if not boost.is_new then second, any = step.boost_kernel.write(step.boost, boost), true end
      word = word .. '/' .. second
    end
    words[place] = word
  end
  r.ends = max(ends, r.needed or 0)
  local behind = r.holds
  if r.leases and r.leases[1] then
    r.ends = max(r.ends, leased_until(sheet, r.leases))
    behind = leases_text(r.leases) .. behind
  end
  r.empty = not any and behind == ''
  r.text = fmt('%s.%.0f %s%s', sheet.fingerprint, r.epoch, table.concat(words, ' '), behind)
  r.touched = false
  r.unsaved = true
end

-- How long an epoch is remembered of an identity of which nothing else is.
local EPOCH_KEPT_MS = 60000
local GIVEN_CLOCK_MS = 3600000

local function each_set(r, act)
  local set = r.first_set
  for place = 1, #r.sheet do
    local step = r.sheet[place]
    if step.kernel.has_set then
      act(KEYS[set], r.plain[place])
      set = set + 1
    end
    if step.boost and step.boost_kernel.has_set then
      act(KEYS[set], r.boost[place])
      set = set + 1
    end
  end
end

local function save(r, now, clock_is_given)
  if r.empty and r.epoch == 0 then
    call('DEL', r.key)
    return
  end
  local ms = GIVEN_CLOCK_MS
  if not clock_is_given then
    ms = max(divide_up(max(r.ends - now, 1), 1000), r.empty and EPOCH_KEPT_MS or 1)
  end
  ms = fmt('%.0f', ms)
  call('SET', r.key, r.text, 'PX', ms)
  if r.sheet.sets == 0 then return end
  each_set(r, function(key, s)
    if s.count > 0 then call('PEXPIRE', key, ms) end
  end)
end
