-- Asks: each of one or more parts, an identity and what it is asked for. See `script/ask.rs` for what is told and what is answered.

local ALONE, QUOTA, TOGETHER = 0, 1, 2
local OPS = { [0] = 'hit', 'charge', 'refund' }
local LONG_WAY = -1

-- How often anything was changed.
local changes = 0

local function touch(r)
  r.touched = true
  changes = changes + 1
end

-- May it pass this step? The moment of its turn, LATER or NEVER; and whether only the boosted limit lets it.
local function pass_of(step, plain, boost, part, holder, now)
  local kernel, cost = step.kernel, part.cost
  -- Nothing is always granted, except by a limit that compares after counting.
  if cost == 0 and not kernel.counts_first then return now, false end
  if kernel.is_held and holder and kernel.holds(plain) then return now, false end
  local turn = kernel.pass(step.limit, plain, cost, now)
  if not step.boost or not part.open then return turn, false end
  -- While the gate is open the boosted limit decides, and the plain one says what to mark.
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
  -- What is above the plain limit is not held against it once the gate closes.
  if is_boosted then own = kernel.available(step.limit, plain, cost, now) end
  if own > 0 then kernel.spend(step.limit, plain, own, now) end
  if boost then step.boost_kernel.spend(step.boost, boost, cost, now) end
end

-- A rule in the shadow is charged only if all of it would have let the request through.
local function rules_that_agree(parts, turns)
  local agree, i = {}, 0
  for p = 1, #parts do
    for _ = 1, #parts[p].sheet do
      i = i + 1
      if not turns[i] then agree[parts[p].rule] = false end
    end
  end
  return agree
end

-- Charges all parts if every enforced limit agrees. Whether they do.
local function admit(parts, holder, now)
  local turns, boosts, i = {}, {}, 0
  local allowed, never, shadows = true, false, false
  for p = 1, #parts do
    local part = parts[p]
    local r = part.record
    shadows = shadows or part.sheet.has_shadow
    for place = 1, #part.sheet do
      local step, turn = part.sheet[place], nil
      i = i + 1
      turn, boosts[i] = pass_of(step, r.plain[place], r.boost[place], part, holder, now)
      turns[i] = turn or false
      if step.enforced and not turn then
        allowed = false
        if turn == NEVER then never = true end
      end
    end
  end
  local agree = shadows and rules_that_agree(parts, turns)
  i = 0
  for p = 1, #parts do
    local part = parts[p]
    local r, cost = part.record, part.cost
    for place = 1, #part.sheet do
      local step = part.sheet[place]
      i = i + 1
      local goes = step.kernel.counts_first
        or allowed and (step.enforced or agree[part.rule] ~= false)
      if cost > 0 and goes then
        charge(step, r.plain[place], r.boost[place], cost, boosts[i], holder, now)
        touch(r)
      elseif cost > 0 and not never and step.limit.denied then
        step.kernel.log_denied(step.limit, r.plain[place], cost, now)
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

-- Consumes whatever is left, or gives back.
local function book(part, op, now)
  local r, cost = part.record, part.cost
  if cost == 0 then return end
  for place = 1, #part.sheet do
    local step = part.sheet[place]
    local act = op == 'charge' and 'spend' or 'put'
    step.kernel[act](step.limit, r.plain[place], cost, now)
    if step.boost then step.boost_kernel[act](step.boost, r.boost[place], cost, now) end
  end
  if op == 'refund' and r.known then r.epoch = cut(r.epoch + 1) end
  -- What is given back does not undo what is leased.
  if op == 'refund' then keep_leased(r, now) end
  touch(r)
end

-- Tells a part as it is before it is asked: its record, and of its sets as much as matters.
local function tell(part, holder, now, out)
  local r, told = part.record, part.preview
  if told and part.previewed_at == changes and r.looked_at_by == part then
    for i = 1, #told do out[#out + 1] = told[i] end
    return
  end
  if r.touched then close_record(r, now) end
  out[#out + 1] = r.text
  if part.sheet.sets == 0 then return end
  r.looked_at_by = part
  for place = 1, #part.sheet do
    local step = part.sheet[place]
    if step.kernel.has_set then
      step.kernel.look(step.limit, r.plain[place], part.cost, now, holder)
      step.kernel.tell(step.limit, r.plain[place], out)
    end
    if step.boost and step.boost_kernel.has_set then
      step.boost_kernel.look(step.boost, r.boost[place], part.cost, now, holder)
      step.boost_kernel.tell(step.boost, r.boost[place], out)
    end
  end
end

-- Whether all parts can be asked here.
local function goes_the_short_way(ask, now)
  local times = ask.count * #ask
  for p = 1, #ask do
    local part = ask[p]
    local r = part.record
    if r.long or part.cost > EXACT_MAX then return false end
    for place = 1, #part.sheet do
      local step, plain, boost = part.sheet[place], r.plain[place], r.boost[place]
      -- More than a cycle holds: when it is ready depends on all the others at that moment.
      if step.limit.face == CYCLE and step.limit.align and part.cost > step.limit.capacity then
        return false
      end
      local beyond = step.kernel.is_beyond
      if beyond and beyond(step.limit, plain, ask.op, part.cost, times, now) then return false end
      if beyond and step.boost and beyond(step.boost, boost, ask.op, part.cost, times, now) then
        return false
      end
    end
  end
  return true
end

-- Asks once, and tells in `out` what it found if that is given. Whether it passes.
local function ask_once(ask, now, out)
  local op, holder = ask.op, ask.holder
  local allowed, quotas, exhausted, together = true, 0, 0, nil
  for p = 1, #ask do
    local part = ask[p]
    if part.stand ~= TOGETHER or op ~= 'hit' then
      if out then tell(part, holder, now, out) end
      if op ~= 'hit' then
        book(part, op, now)
      else
        local said = admit({ part }, holder, now)
        if part.stand == QUOTA then
          quotas = quotas + 1
          if not said then exhausted = exhausted + 1 end
        elseif not said then
          allowed = false
        end
      end
    else
      together = together or {}
      together[#together + 1] = part
    end
  end
  if quotas > 0 and exhausted == quotas and not ask.has_idle_quota then allowed = false end
  if together then
    for p = 1, out and #together or 0 do tell(together[p], holder, now, out) end
    -- What is denied already is only looked at.
    if allowed then allowed = admit(together, holder, now) end
  end
  return allowed
end

for i = 1, sheet_count do sheets[i].is_plain = is_plain(sheets[i]) end

-- How many bytes a part is told in.
local PART_BYTES = 14

-- Whether the ask at `at` is of one part and went the quick way.
local function is_quick()
  local sheet, cost = unpack_bytes('<I2I8', asks, at)
  local key = KEYS[key_place]
  sheet = sheets[sheet + 1]
  if not sheet.is_plain or cost == 0 or cost > EXACT_MAX or records[key] then return false end
  if not goes_quickly(sheet, key, cost, now, given == 1, out) then return false end
  at, key_place = at + PART_BYTES, key_place + 1
  return true
end

local function ask_next(op, count, parts, held, holder)
  local ask = { op = OPS[op], count = count, holder = holder }
  -- A quota that is not asked agrees.
  ask.has_idle_quota = held >= 2
  if held % 2 == 0 then ask.holder = nil end
  local has_sets = false
  for p = 1, parts do
    local part, sheet, open_gate = {}, 0, 0
    sheet, part.cost, open_gate, part.stand, part.rule, at = unpack_bytes('<I2I8BBI2', asks, at)
    part.open, sheet = open_gate == 1, sheets[sheet + 1]
    -- Not that of the record: tallies of different limits have one count.
    part.record, part.sheet = record_of(sheet), sheet
    key_place = key_place + 1 + sheet.sets
    has_sets = has_sets or sheet.sets > 0
    ask[p] = part
  end
  if has_sets then kernels.codec.unreadable = false end
  local goes = goes_the_short_way(ask, now)
  if goes then
    for p = 1, parts do
      if not ask[p].record.is_open then open_record(ask[p].record, now) end
    end
    -- Sets are read before anything is written: what is found goes into the preview of each part.
    for p = 1, has_sets and parts or 0 do
      local preview = {}
      tell(ask[p], ask.holder, now, preview)
      ask[p].preview, ask[p].previewed_at = preview, changes
    end
    goes = not has_sets or not kernels.codec.unreadable
  end
  if not goes then
    out[#out + 1] = LONG_WAY
  else
    local place = #out + 1
    out[place], out[place + 1] = 0, 0
    local passed_count, told = 0, 0
    for turn = 1, ask.count do
      -- Where there are no sets, the node knows itself how it goes on from the first.
      local tells = turn == 1 or has_sets
      if tells then told = told + 1 end
      local before = changes
      local allowed = ask_once(ask, now, tells and out)
      if allowed then passed_count = passed_count + 1 end
      -- Denied, and as it was: so are all that follow.
      if not allowed and changes == before then break end
    end
    out[place], out[place + 1] = passed_count, told
  end
end

for _ = 1, ask_count do
  local op, count, parts, held, holder
  op, count, parts, held, holder, at = unpack_bytes('<BI4I2Bc16', asks, at)
  local is_one = op == 0 and count == 1 and parts == 1 and held == 0
  if not is_one or not is_quick() then ask_next(op, count, parts, held, holder) end
end

save_all()
return out
