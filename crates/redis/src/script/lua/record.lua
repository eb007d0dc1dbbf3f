-- Parameters of limits, and records of identities. Their formats are described in `core/record`.

local function read_params(text)
  local fingerprint, count, at = unpack_bytes('<c8B', text)
  -- Start of a record with epoch 0.
  local params = { fingerprint = fingerprint, prefix = fingerprint .. '.0 ', sets = 0 }
  for index = 1, count do
    local flags, kind
    flags, kind, at = unpack_bytes('<BB', text, at)
    local step = { enforced = flags % 2 == 1, kind = kind, kernel = kernels[kind] }
    step.limit, at = step.kernel.params(text, at)
    if step.kernel.has_set then params.sets = params.sets + 1 end
    if flags >= 2 then
      kind, at = unpack_bytes('<B', text, at)
      step.boost_kernel = kernels[kind]
      step.boost, at = step.boost_kernel.params(text, at)
      if step.boost_kernel.has_set then params.sets = params.sets + 1 end
    end
    if not step.enforced then params.has_shadow = true end
    if step.limit.denied then params.logs_denied = true end
    params[index] = step
  end
  return params
end

-- Reads the states of a record into `plain` and, of boosted limits, `boost`. Returns false if it is
-- corrupt.
local function read_cells(r, cells)
  local params, index, set = r.params, 0, r.first_set
  local plain, boost = {}, {}
  for word in string.gmatch(cells, '[^ ]+') do
    local step = params[index + 1]
    if not step then return false end
    index = index + 1
    local first, second = word, nil
    if step.boost then
      first, second = match(word, '^([^/]+)/([^/]+)$')
      if not first then return false end
    end
    if first ~= '-' then
      plain[index] = step.kernel.read(step.limit, first, KEYS[set])
      if not plain[index] then return false end
    end
    if step.kernel.has_set then set = set + 1 end
    if second and second ~= '-' then
      boost[index] = step.boost_kernel.read(step.boost, second, KEYS[set])
      if not boost[index] then return false end
    end
    if step.boost and step.boost_kernel.has_set then set = set + 1 end
  end
  -- Cells are separated by one space.
  if index ~= #params or string.find(cells, '^ ') or string.find(cells, ' $') or string.find(cells, '  ', 1, true) then
    return false
  end
  r.plain, r.boost = plain, boost
  return true
end

-- Leases of nodes, ordered by their ends; see `core/lease`. Hits need only amount and end of each;
-- `word` is its whole text.

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

-- Quota that nodes may still hold.
local function outstanding(leases, now)
  local held = 0
  for i = #leases, 1, -1 do
    if leases[i].ends <= now then break end
    held = saturate(held + leases[i].amount)
  end
  return held
end

-- Raises the use to what nodes hold, or may have used before their leases expired.
local function keep_leased(r, now)
  local leases = r.leases
  if not leases or #leases == 0 then return end
  local held = outstanding(leases, now)
  for index = 1, #r.params do
    local step = r.params[index]
    if step.kernel.keep_leased then
      step.kernel.keep_leased(step.limit, r.plain[index], leases, held, now)
    end
    if step.boost and step.boost_kernel.keep_leased then
      step.boost_kernel.keep_leased(step.boost, r.boost[index], leases, held, now)
    end
  end
end

-- Drops expired leases.
local function drop_expired(leases, now)
  while leases[1] and leases[1].ends <= now do table.remove(leases, 1) end
end

-- Whether the record has a time that only the core supports: a pending change, or a clock that went
-- back.
local function has_unsupported_time(r, now)
  local leases = r.leases
  if leases and leases[#leases].ends > now + TTL_MAX + CLOCK_SLACK then return true end
  if r.changes_at and (now >= r.changes_at or now < r.stays_from) then return true end
  for index = 1, #r.params do
    local step, plain, boost = r.params[index], r.plain[index], r.boost[index]
    if plain and step.kernel.is_set_back(step.limit, plain, now) then return true end
    if boost and step.boost_kernel.is_set_back(step.boost, boost, now) then return true end
  end
  return false
end

-- Loads the record of an identity.
local function load_record(key_index, params, now)
  local key = KEYS[key_index]
  local text = redis.pcall('GET', key)
  -- A key of another type is reported as corrupt.
  if type(text) == 'table' then text = '?' end
  local r = { key = key, first_set = key_index + 1, params = params, text = text, epoch = 0, holds = '' }
  r.plain, r.boost = {}, {}
  if not text then return r end
  -- Records of other limits and corrupt ones are deferred to the node.
  r.is_unsupported = true
  local fingerprint, epoch, rest = match(text, '^(%x+)%.(%d+) (.*)$')
  local exact = kernels.codec.exact
  epoch = exact(epoch)
  if not epoch or fingerprint ~= params.fingerprint then return r end
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
  r.is_unsupported = has_unsupported_time(r, now)
  return r
end

-- A state rolled forward to `now`, or a new one; and whether it differs from the stored one.
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
  -- If a new state is less than full, the first sight of an identity counts.
  return s, l.starts_short == true
end

local function open_record(r, now)
  r.is_open = true
  local set = r.first_set
  for index = 1, #r.params do
    local step, changed = r.params[index], false
    r.plain[index], changed = open(step.kernel, step.limit, r.plain[index], now, KEYS[set])
    if changed then
      r.rolled = true
      -- Members were removed from the set: the record must match.
      if step.kernel.has_set then r.touched = true end
    end
    if step.kernel.has_set then set = set + 1 end
    if step.boost then
      r.boost[index], changed = open(step.boost_kernel, step.boost, r.boost[index], now, KEYS[set])
      if changed then
        r.rolled = true
        if step.boost_kernel.has_set then r.touched = true end
      end
      if step.boost_kernel.has_set then set = set + 1 end
    end
  end
  if r.leases then
    keep_leased(r, now)
    drop_expired(r.leases, now)
  end
end

-- When leases stop to matter: as if all of them were used at the last moment.
local function leased_until(params, leases)
  local last = leases[#leases].ends
  local held, ends = outstanding(leases, 0), last
  for index = 1, #params do
    local step = params[index]
    local time_of = step.kernel.time_of
    if time_of then ends = max(ends, saturate(last + ceil_of(time_of(step.limit, held)))) end
    time_of = step.boost and step.boost_kernel.time_of
    if time_of then ends = max(ends, saturate(last + ceil_of(time_of(step.boost, held)))) end
  end
  return ends
end

-- Drops an expired state. Returns the state and when it expires.
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

-- Encodes a changed record.
local function close_record(r, now)
  local params, words, ends, any = r.params, {}, 0, false
  for index = 1, #params do
    local step, word = params[index], '-'
    local plain, expires = close(step.kernel, step.limit, r.plain[index], now)
    r.plain[index], ends = plain, max(ends, expires)
    if not plain.is_new then word, any = step.kernel.write(step.limit, plain), true end
    if step.boost then
      local boost, second = nil, '-'
      boost, expires = close(step.boost_kernel, step.boost, r.boost[index], now)
      r.boost[index], ends = boost, max(ends, expires)
      if not boost.is_new then second, any = step.boost_kernel.write(step.boost, boost), true end
      word = word .. '/' .. second
    end
    words[index] = word
  end
  r.ends = max(ends, r.needed or 0)
  local behind = r.holds
  if r.leases and r.leases[1] then
    r.ends = max(r.ends, leased_until(params, r.leases))
    behind = leases_text(r.leases) .. behind
  end
  r.empty = not any and behind == ''
  r.text = fmt('%s.%.0f %s%s', params.fingerprint, r.epoch, table.concat(words, ' '), behind)
  r.touched = false
  r.unsaved = true
end

-- Lifetime of a record that has nothing but an epoch.
local EPOCH_TTL_MS = 60000
local GIVEN_CLOCK_TTL_MS = 3600000
-- A server counts a lifetime in whole milliseconds, from the one in which the script began: without
-- these, a record could be gone up to two milliseconds before its state expires.
local TTL_SLACK_MS = 2

local function each_set(r, act)
  local set = r.first_set
  for index = 1, #r.params do
    local step = r.params[index]
    if step.kernel.has_set then
      act(KEYS[set], r.plain[index])
      set = set + 1
    end
    if step.boost and step.boost_kernel.has_set then
      act(KEYS[set], r.boost[index])
      set = set + 1
    end
  end
end

local function save(r, now, clock_is_given)
  if r.empty and r.epoch == 0 then
    call('DEL', r.key)
    return
  end
  local ms = GIVEN_CLOCK_TTL_MS
  if not clock_is_given then
    ms = max(divide_up(max(r.ends - now, 1), 1000) + TTL_SLACK_MS, r.empty and EPOCH_TTL_MS or 1)
  end
  ms = fmt('%.0f', ms)
  call('SET', r.key, r.text, 'PX', ms)
  if r.params.sets == 0 then return end
  each_set(r, function(key, s)
    if s.count > 0 then call('PEXPIRE', key, ms) end
  end)
end
