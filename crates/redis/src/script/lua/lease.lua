-- Lease calls: a node gives back, holds and wants. See `core/account/leasing.rs` for what becomes of it, `script/lease.rs` for what is told.

local LONG_WAY, STALE = -1, -2
local CELLS_MAX, WEIGHT_MAX = 64, 1099511627776

-- What was added beyond a bucket is not leased: it is for those who come and ask.
local function room_of(r)
  local room = EXACT_MAX
  for place = 1, #r.sheet do
    local step, s = r.sheet[place], r.plain[place]
    local extra = s.extra
    if extra then s.extra = 0 end
    room = min(room, step.kernel.available(step.limit, s, EXACT_MAX, now))
    s.extra = extra
  end
  return room
end

-- When what is leased now has to be used.
local function ends_of(r, ttl)
  local ends = now + min(ttl, TTL_MAX)
  for place = 1, #r.sheet do
    local step = r.sheet[place]
    if step.kernel.lease_ends then
      ends = min(ends, step.kernel.lease_ends(step.limit, r.plain[place]))
    end
  end
  return ends
end

-- What `want` is granted of what there is: half of it, shared by demand.
local function share(leases, room, want)
  local own = min(want, WEIGHT_MAX)
  local all = own
  for i = 1, #leases do all = all + tonumber(match(leases[i].word, ':(%d+):%d+$')) end
  if all == 0 then return 0 end
  return min(want, (muldiv(room, own, cut(all * 2))))
end

local function node_of(cell)
  return string.sub(cell.word, 1, 16)
end

-- The place of a node's cell, if it has one.
local function place_of(leases, node)
  for i = 1, #(leases or {}) do
    if node_of(leases[i]) == node then return i end
  end
  return nil
end

-- The node's cell, if it has not run out, and the serial of the call that wrote it.
local function own_cell(r, node)
  local place = place_of(r.leases, node)
  local cell = place and r.leases[place]
  if not cell or cell.ends <= now then return nil, 0 end
  return cell, tonumber(match(cell.word, '^%x+:(%d+)'))
end

-- By their ends, and those that end together by their nodes.
local function put_cell(leases, cell)
  local place = #leases
  while place > 0 do
    local before = leases[place]
    if before.ends < cell.ends or before.ends == cell.ends and node_of(before) < node_of(cell) then break end
    place = place - 1
  end
  table.insert(leases, place + 1, cell)
end

local function lend(r, amount)
  for place = 1, #r.sheet do
    local step, s = r.sheet[place], r.plain[place]
    local extra, seen = s.extra, s.seen
    if extra then s.extra = 0 end
    step.kernel.spend(step.limit, s, amount, now)
    if extra and extra > 0 then s.extra, s.seen = extra, max(seen or now, now) end
  end
end

-- How many more the node has.
local function hear(r, node, serial, give, hold, want, ttl)
  r.leases = r.leases or {}
  local leases = r.leases
  local place, own = place_of(leases, node), nil
  if place then own = table.remove(leases, place) end
  -- Who has nothing and wants nothing leaves no trace.
  if not own and (want == 0 or #leases >= CELLS_MAX) then return 0 end
  r.touched = true
  -- Who says that it has more than we know of has it from a store that has forgotten it.
  local kept = own and give + hold <= own.amount
  if kept and give > 0 then
    for step_place = 1, #r.sheet do
      local step = r.sheet[step_place]
      step.kernel.put(step.limit, r.plain[step_place], give, now)
    end
    r.epoch = cut(r.epoch + 1)
  end
  local granted = 0
  if ends_of(r, ttl) > now then granted = share(leases, room_of(r), want) end
  if granted > 0 then lend(r, granted) end
  local ends = ends_of(r, ttl)
  if ends > now then
    local amount = cut((kept and hold or 0) + granted)
    local word = fmt('%s:%.0f:%.0f:%.0f:%.0f', node, serial, amount, min(want, WEIGHT_MAX), ends)
    put_cell(leases, { word = word, amount = amount, ends = ends })
  end
  keep_leased(r, now)
  return granted
end

for _ = 1, ask_count do
  local sheet, node, serial, give, hold, want, ttl
  sheet, node, serial, give, hold, want, ttl, at = unpack_bytes('<I2c16I8I8I8I8I8', asks, at)
  local r = want <= EXACT_MAX and record_of(sheets[sheet + 1])
  key_place = key_place + 1
  local cell, last = nil, 0
  if r and not r.long then cell, last = own_cell(r, node) end
  if not r or r.long then
    out[#out + 1] = LONG_WAY
  elseif cell and last > serial then
    out[#out + 1] = STALE
  elseif cell and last == serial then
    -- A retry of a call that was executed: the same grant, and nothing changes.
    if r.touched then close_record(r, now) end
    out[#out + 1] = max(cell.amount - hold, 0)
    out[#out + 1] = r.text
  else
    if r.touched then close_record(r, now) end
    local place, found = #out + 1, r.text
    if not r.is_open then open_record(r, now) end
    out[place] = hear(r, node, serial, give, hold, want, ttl)
    out[place + 1] = found
  end
end

save_all()
return out
