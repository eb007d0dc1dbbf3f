-- Lease requests: a node returns, holds and acquires quota. The model is `core/account/lease.rs`,
-- the encoding is described in `script/lease.rs`.

local UNSUPPORTED, STALE = -1, -2
local CELLS_MAX, WEIGHT_MAX = 64, 1099511627776

-- Quota that may be leased. Extra quota beyond a bucket is not: it is for direct requests.
local function room_of(r)
  local room = EXACT_MAX
  for index = 1, #r.params do
    local step, s = r.params[index], r.plain[index]
    local extra = s.extra
    if extra then s.extra = 0 end
    room = min(room, step.kernel.available(step.limit, s, EXACT_MAX, now))
    s.extra = extra
  end
  return room
end

-- End of a lease granted now.
local function ends_of(r, ttl)
  local ends = now + min(ttl, TTL_MAX)
  for index = 1, #r.params do
    local step = r.params[index]
    if step.kernel.lease_ends then
      ends = min(ends, step.kernel.lease_ends(step.limit, r.plain[index]))
    end
  end
  return ends
end

-- Grant for `want`: a share by demand in half of the room.
local function share(leases, room, want)
  local own = min(want, WEIGHT_MAX)
  local all = own
  for i = 1, #leases do all = all + tonumber(match(leases[i].word, ':(%d+):%d+$')) end
  if all == 0 then return 0 end
  return min(want, (muldiv(room, own, saturate(all * 2))))
end

local function node_of(cell)
  return string.sub(cell.word, 1, 16)
end

-- Index of a node's lease.
local function index_of(leases, node)
  for i = 1, #(leases or {}) do
    if node_of(leases[i]) == node then return i end
  end
  return nil
end

-- The lease of a node, unless it expired, and the serial of the request that wrote it.
local function own_cell(r, node)
  local index = index_of(r.leases, node)
  local cell = index and r.leases[index]
  if not cell or cell.ends <= now then return nil, 0 end
  return cell, tonumber(match(cell.word, '^%x+:(%d+)'))
end

-- Inserts by end, then by node.
local function put_cell(leases, cell)
  local index = #leases
  while index > 0 do
    local before = leases[index]
    if before.ends < cell.ends or before.ends == cell.ends and node_of(before) < node_of(cell) then break end
    index = index - 1
  end
  table.insert(leases, index + 1, cell)
end

local function spend_leased(r, amount)
  for index = 1, #r.params do
    local step, s = r.params[index], r.plain[index]
    local extra, seen = s.extra, s.seen
    if extra then s.extra = 0 end
    step.kernel.spend(step.limit, s, amount, now)
    if extra and extra > 0 then s.extra, s.seen = extra, max(seen or now, now) end
  end
end

-- Executes a request. Returns the grant.
local function execute(r, node, serial, give, hold, want, ttl)
  r.leases = r.leases or {}
  local leases = r.leases
  local index, own = index_of(leases, node), nil
  if index then own = table.remove(leases, index) end
  -- Without a lease and a demand nothing changes.
  if not own and (want == 0 or #leases >= CELLS_MAX) then return 0 end
  r.touched = true
  -- A node that claims more than its lease has it from a store that lost data.
  local kept = own and give + hold <= own.amount
  if kept and give > 0 then
    for step_index = 1, #r.params do
      local step = r.params[step_index]
      step.kernel.put(step.limit, r.plain[step_index], give, now)
    end
    r.epoch = saturate(r.epoch + 1)
  end
  local granted = 0
  if ends_of(r, ttl) > now then granted = share(leases, room_of(r), want) end
  if granted > 0 then spend_leased(r, granted) end
  local ends = ends_of(r, ttl)
  if ends > now then
    local amount = saturate((kept and hold or 0) + granted)
    local word = fmt('%s:%.0f:%.0f:%.0f:%.0f', node, serial, amount, min(want, WEIGHT_MAX), ends)
    put_cell(leases, { word = word, amount = amount, ends = ends })
  end
  keep_leased(r, now)
  return granted
end

for _ = 1, request_count do
  local params, node, serial, give, hold, want, ttl
  params, node, serial, give, hold, want, ttl, at = unpack_bytes('<I2c16I8I8I8I8I8', requests, at)
  local r = want <= EXACT_MAX and record_of(all_params[params + 1])
  key_index = key_index + 1
  local cell, last = nil, 0
  if r and not r.is_unsupported then cell, last = own_cell(r, node) end
  if not r or r.is_unsupported then
    out[#out + 1] = UNSUPPORTED
  elseif cell and last > serial then
    out[#out + 1] = STALE
  elseif cell and last == serial then
    -- A retry of an executed request: the same grant, and nothing changes.
    if r.touched then close_record(r, now) end
    out[#out + 1] = max(cell.amount - hold, 0)
    out[#out + 1] = r.text
  else
    if r.touched then close_record(r, now) end
    local index, found = #out + 1, r.text
    if not r.is_open then open_record(r, now) end
    out[index] = execute(r, node, serial, give, hold, want, ttl)
    out[index + 1] = found
  end
end

save_all()
return out
