-- Decides requests, each of one or more parts (an identity and a cost). The encoding of requests
-- and replies is described in `script/request.rs` and `script/reply.rs`.

local INDEPENDENT, QUOTA, ALL_OR_NOTHING = 0, 1, 2
local OPS = { [0] = 'hit', 'charge', 'refund' }
local UNSUPPORTED = -1

-- Number of changes to records.
local changes = 0

local function touch(r)
  r.touched = true
  changes = changes + 1
end

-- The time from which a step allows the part, LATER or NEVER; and whether only its boosted limit
-- does.
local function pass_of(step, plain, boost, part, holder, now)
  local kernel, cost = step.kernel, part.cost
  -- A zero cost always passes, except a limit that compares after counting.
  if cost == 0 and not kernel.counts_first then return now, false end
  if kernel.is_held and holder and kernel.holds(plain) then return now, false end
  local turn = kernel.pass(step.limit, plain, cost, now)
  if not step.boost or not part.spare_capacity then return turn, false end
  -- With spare capacity the boosted limit decides, and the plain one limits its own charge.
  local boosted = step.boost_kernel.pass(step.boost, boost, cost, now)
  if not boosted then return boosted, false end
  return boosted, not (turn and turn <= boosted)
end

local function charge(step, plain, boost, cost, is_boosted, holder, now)
  local kernel = step.kernel
  if kernel.is_held then
    kernel.hold(step.limit, plain, holder, cost, now)
    if boost then step.boost_kernel.hold(step.boost, boost, holder, cost, now) end
    return
  end
  local own = cost
  -- Use above the plain limit is not charged to it, so that it does not count later.
  if is_boosted then own = kernel.available(step.limit, plain, cost, now) end
  if own > 0 then kernel.spend(step.limit, plain, own, now) end
  if boost then step.boost_kernel.spend(step.boost, boost, cost, now) end
end

-- A shadow rule is charged only if all its limits allow the request.
local function allowing_rules(parts, turns)
  local agree, i = {}, 0
  for p = 1, #parts do
    for _ = 1, #parts[p].params do
      i = i + 1
      if not turns[i] then agree[parts[p].rule] = false end
    end
  end
  return agree
end

-- Charges all parts if every enforced limit allows. Returns whether they do.
local function admit(parts, holder, now)
  local turns, boosts, i = {}, {}, 0
  local allowed, never, shadows = true, false, false
  for p = 1, #parts do
    local part = parts[p]
    local r = part.record
    shadows = shadows or part.params.has_shadow
    for index = 1, #part.params do
      local step, turn = part.params[index], nil
      i = i + 1
      turn, boosts[i] = pass_of(step, r.plain[index], r.boost[index], part, holder, now)
      turns[i] = turn or false
      if step.enforced and not turn then
        allowed = false
        if turn == NEVER then never = true end
      end
    end
  end
  local agree = shadows and allowing_rules(parts, turns)
  i = 0
  for p = 1, #parts do
    local part = parts[p]
    local r, cost = part.record, part.cost
    for index = 1, #part.params do
      local step = part.params[index]
      i = i + 1
      local charges = step.kernel.counts_first
        or allowed and (step.enforced or agree[part.rule] ~= false)
      if cost > 0 and charges then
        charge(step, r.plain[index], r.boost[index], cost, boosts[i], holder, now)
        touch(r)
      elseif cost > 0 and not never and step.limit.denied then
        step.kernel.log_denied(step.limit, r.plain[index], cost, now)
        touch(r)
      end
    end
    if cost > 0 and r.rolled then
      r.rolled = false
      touch(r)
    end
  end
  return allowed
end

-- Charges into debt, or refunds.
local function charge_or_refund(part, op, now)
  local r, cost = part.record, part.cost
  if cost == 0 then return end
  for index = 1, #part.params do
    local step = part.params[index]
    local act = op == 'charge' and 'spend' or 'put'
    step.kernel[act](step.limit, r.plain[index], cost, now)
    if step.boost then step.boost_kernel[act](step.boost, r.boost[index], cost, now) end
  end
  if op == 'refund' and r.known then r.epoch = saturate(r.epoch + 1) end
  -- A refund does not release leased quota.
  if op == 'refund' then keep_leased(r, now) end
  touch(r)
end

-- Reports a part before it is decided: its record, and the relevant part of its sets.
local function report(part, holder, now, out)
  local r, preview = part.record, part.preview
  if preview and part.previewed_at == changes and r.viewed_by == part then
    for i = 1, #preview do out[#out + 1] = preview[i] end
    return
  end
  if r.touched then close_record(r, now) end
  out[#out + 1] = r.text
  if part.params.sets == 0 then return end
  r.viewed_by = part
  for index = 1, #part.params do
    local step = part.params[index]
    if step.kernel.has_set then
      step.kernel.view_for(step.limit, r.plain[index], part.cost, now, holder)
      step.kernel.report(step.limit, r.plain[index], out)
    end
    if step.boost and step.boost_kernel.has_set then
      step.boost_kernel.view_for(step.boost, r.boost[index], part.cost, now, holder)
      step.boost_kernel.report(step.boost, r.boost[index], out)
    end
  end
end

-- Whether the script supports all parts.
local function is_supported(request, now)
  local times = request.count * #request
  for p = 1, #request do
    local part = request[p]
    local r = part.record
    if r.is_unsupported or part.cost > EXACT_MAX then return false end
    for index = 1, #part.params do
      local step, plain, boost = part.params[index], r.plain[index], r.boost[index]
      -- A cost above a cycle's capacity: its time depends on all other hits until then.
      if step.limit.variant == CYCLE and step.limit.align and part.cost > step.limit.capacity then
        return false
      end
      local beyond = step.kernel.is_beyond
      if beyond and beyond(step.limit, plain, request.op, part.cost, times, now) then return false end
      if beyond and step.boost and beyond(step.boost, boost, request.op, part.cost, times, now) then
        return false
      end
    end
  end
  return true
end

-- Decides a request once, and reports its state in `out` if given. Returns whether it is allowed.
local function decide_once(request, now, out)
  local op, holder = request.op, request.holder
  local allowed, quotas, exhausted, all_or_nothing = true, 0, 0, nil
  for p = 1, #request do
    local part = request[p]
    if part.combine ~= ALL_OR_NOTHING or op ~= 'hit' then
      if out then report(part, holder, now, out) end
      if op ~= 'hit' then
        charge_or_refund(part, op, now)
      else
        local passed = admit({ part }, holder, now)
        if part.combine == QUOTA then
          quotas = quotas + 1
          if not passed then exhausted = exhausted + 1 end
        elseif not passed then
          allowed = false
        end
      end
    else
      all_or_nothing = all_or_nothing or {}
      all_or_nothing[#all_or_nothing + 1] = part
    end
  end
  if quotas > 0 and exhausted == quotas and not request.has_skipped_quota then allowed = false end
  if all_or_nothing then
    for p = 1, out and #all_or_nothing or 0 do report(all_or_nothing[p], holder, now, out) end
    -- Parts of a denied request are not charged.
    if allowed then allowed = admit(all_or_nothing, holder, now) end
  end
  return allowed
end

for i = 1, params_count do all_params[i].has_fast_path = has_fast_path(all_params[i]) end

-- Encoded length of a part.
local PART_BYTES = 14

-- Decides the single-part request at `at` by the fast path. Returns whether it could.
local function took_fast_path()
  local params, cost = unpack_bytes('<I2I8', requests, at)
  local key = KEYS[key_index]
  params = all_params[params + 1]
  if not params.has_fast_path or cost == 0 or cost > EXACT_MAX or records[key] then return false end
  if not try_fast_path(params, key, cost, now, given == 1, out) then return false end
  at, key_index = at + PART_BYTES, key_index + 1
  return true
end

local function decide_next(op, count, parts, held, holder)
  local request = { op = OPS[op], count = count, holder = holder }
  -- A skipped quota allows.
  request.has_skipped_quota = held >= 2
  if held % 2 == 0 then request.holder = nil end
  local has_sets = false
  for p = 1, parts do
    local part, params, spare_capacity = {}, 0, 0
    params, part.cost, spare_capacity, part.combine, part.rule, at = unpack_bytes('<I2I8BBI2', requests, at)
    part.spare_capacity, params = spare_capacity == 1, all_params[params + 1]
    -- Not those of the record: tallies with different limits share a count.
    part.record, part.params = record_of(params), params
    key_index = key_index + 1 + params.sets
    has_sets = has_sets or params.sets > 0
    request[p] = part
  end
  if has_sets then kernels.codec.unreadable = false end
  local supported = is_supported(request, now)
  if supported then
    for p = 1, parts do
      if not request[p].record.is_open then open_record(request[p].record, now) end
    end
    -- Sets are read before anything is written, into the preview of each part.
    for p = 1, has_sets and parts or 0 do
      local preview = {}
      report(request[p], request.holder, now, preview)
      request[p].preview, request[p].previewed_at = preview, changes
    end
    supported = not has_sets or not kernels.codec.unreadable
  end
  if not supported then
    out[#out + 1] = UNSUPPORTED
  else
    local index = #out + 1
    out[index], out[index + 1] = 0, 0
    local passed_count, report_count = 0, 0
    for turn = 1, request.count do
      -- Without sets, the node derives the later states from the first.
      local reports = turn == 1 or has_sets
      if reports then report_count = report_count + 1 end
      local before = changes
      local allowed = decide_once(request, now, reports and out)
      if allowed then passed_count = passed_count + 1 end
      -- Denied without a change: so are all that follow.
      if not allowed and changes == before then break end
    end
    out[index], out[index + 1] = passed_count, report_count
  end
end

for _ = 1, request_count do
  local op, count, parts, held, holder
  op, count, parts, held, holder, at = unpack_bytes('<BI4I2Bc16', requests, at)
  local is_one = op == 0 and count == 1 and parts == 1 and held == 0
  if not is_one or not took_fast_path() then decide_next(op, count, parts, held, holder) end
end

save_all()
return out
