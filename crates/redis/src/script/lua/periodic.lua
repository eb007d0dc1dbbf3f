-- Limits with periods: periodic refills (interval bucket, fixed window, cycle), the sliding window,
-- the tally; and limits that allow everything or nothing.

makers[3] = function()
  local CLOCK, FIRST_HIT, CALENDAR = 0, 1, 2

  -- Periods, as `core/algorithm/period.rs`.

  local function start_of(l, now)
    if l.align == CLOCK then return aligned(now, l.length) end
    if l.align == FIRST_HIT then return now end
    local edges = l.edges
    for i = #edges - 1, 1, -1 do
      if edges[i] <= now then return edges[i] end
    end
    return edges[1]
  end

  local function passed(l, anchor, now)
    if l.align == CLOCK then return max(divide(now, l.length) - divide(anchor, l.length), 0) end
    if l.align == FIRST_HIT then return divide(max(now - anchor, 0), l.length) end
    local edges, count = l.edges, 0
    if edges[1] > anchor and edges[1] <= now then count = divide_up(edges[1] - anchor, l.length) end
    for i = 2, #edges - 1 do
      if anchor < edges[i] and edges[i] <= now then count = count + 1 end
    end
    return count
  end

  local function nth_after(l, anchor, nth)
    if l.align ~= CALENDAR then return saturate(anchor + l.length * nth) end
    local edges, after, known = l.edges, max(anchor, l.edges[1]), 0
    -- The first later period also stands for that of the anchor.
    local wanted = max(nth, 1)
    for i = 1, #edges do
      if edges[i] > after then
        known = known + 1
        if known == wanted then return edges[i] end
      end
    end
    return saturate(edges[#edges] + l.length * max(nth - known, 0))
  end

  local steps = {}

  function steps.params(text, at)
    local l, count = {}, 0
    l.variant, l.capacity, l.refill, l.start, l.forget, l.length, l.align, count, at =
      unpack_bytes('<I8I8I8I8I8I8I8I8', text, at)
    if l.align == CALENDAR then
      l.edges = {}
      for i = 1, count do
        l.edges[i], at = unpack_bytes('<I8', text, at)
      end
    end
    l.starts_short = l.start < l.capacity
    l.slack = slack_of(l.length)
    return l, at
  end

  function steps.read(_, text)
    local level, anchor, rest = match(text, '^(%-?%d+)@(%d+)(.*)$')
    local s = level and { level = kernels.codec.exact(level), anchor = kernels.codec.exact(anchor) }
    if not s or not s.level or s.level < -EXACT_MAX or not s.anchor then return nil end
    return kernels.codec.fields(s, rest, 'sh')
  end

  function steps.write(_, s)
    local text = fmt('%.0f@%.0f', s.level, s.anchor)
    if s.seen then text = text .. fmt(',s%.0f', s.seen) end
    if s.hole then text = text .. fmt(',h%.0f', s.hole) end
    return text
  end

  function steps.fresh(l, now)
    return { level = l.start, anchor = start_of(l, now), seen = l.starts_short and now or nil }
  end

  -- A debt whose refills exceed exact numbers is unsupported too.
  function steps.is_set_back(l, s, now)
    return s.anchor > now + l.slack or l.capacity - s.level > EXACT_MAX
  end

  local function refills_to(l, level, target)
    if level >= target then return 0 end
    return divide_up(target - level, l.refill)
  end

  function steps.settle(l, s, now)
    local changed = false
    if s.hole and s.hole <= now then s.hole, changed = nil, true end
    local refills = passed(l, s.anchor, now)
    if refills == 0 then return changed end
    local filling = refills_to(l, s.level, l.capacity)
    if filling == 0 then
      if l.variant ~= BUCKET then s.level = l.capacity end
    elseif refills >= filling then
      s.level = l.capacity
    else
      s.level = s.level + refills * l.refill
    end
    if l.variant == BUCKET and refills >= filling then
      -- A full bucket remembers since when.
      if filling > 0 then s.anchor = nth_after(l, s.anchor, filling) end
    elseif l.align == FIRST_HIT then
      s.anchor = nth_after(l, s.anchor, refills)
    else
      s.anchor = start_of(l, now)
    end
    return true
  end

  function steps.expires(l, s)
    local refills
    if l.variant ~= BUCKET and s.level > l.capacity then
      refills = 1
    else
      refills = refills_to(l, s.level, l.capacity)
    end
    local full = s.seen and s.anchor or 0
    if refills > 0 then full = max(nth_after(l, s.anchor, refills), full) end
    if s.seen then return forgotten_at(s.seen, full, l.forget) end
    return full
  end

  function steps.pass(l, s, cost, now)
    if cost <= s.level then return now end
    if l.variant ~= CYCLE and cost > max(l.capacity, s.level) then return NEVER end
    return LATER
  end

  local function stamp_steps(l, s, now)
    if l.starts_short or l.variant == BUCKET and s.level > l.capacity then
      s.seen = max(s.seen or now, now)
    else
      s.seen = nil
    end
  end

  function steps.spend(l, s, cost, now)
    -- The first hit on a full limit starts its period.
    if s.level >= l.capacity and s.anchor < now then s.anchor = start_of(l, now) end
    s.level = max(s.level - cost, -EXACT_MAX)
    stamp_steps(l, s, now)
  end

  function steps.put(l, s, amount, now)
    s.level = min(s.level + amount, max(l.capacity, s.level))
    stamp_steps(l, s, now)
  end

  function steps.available(_, s, max_amount)
    return min(max(s.level, 0), max_amount)
  end

  -- Quota added beyond the window stays.
  function steps.keep_leased(l, s, _, held)
    if l.variant == WINDOW and s.level <= l.capacity then s.level = min(s.level, l.capacity - held) end
  end

  function steps.lease_ends(l, s)
    return nth_after(l, s.anchor, 1)
  end

  return steps
end

makers[4] = function()
  local counter = {}

  function counter.params(text, at)
    local l, up = {}, 0
    l.count, l.window, up, at = unpack_bytes('<I8I8I8', text, at)
    l.up = up == 1
    return l, at
  end

  function counter.read(_, text)
    local start, previous, current, rest = match(text, '^(%d+):(%d+):(%d+)(.*)$')
    local exact = kernels.codec.exact
    start, previous, current = exact(start), exact(previous), exact(current)
    if not start or not previous or not current then return nil end
    return { start = start, previous = previous, current = current, booked = rest ~= '' }
  end

  function counter.write(_, s)
    return fmt('%.0f:%.0f:%.0f', s.start, s.previous, s.current)
  end

  function counter.fresh(l, now)
    return { start = aligned(now, l.window), previous = 0, current = 0 }
  end

  -- Bookings and a future window are unsupported.
  function counter.is_set_back(_, s, now)
    return s.booked or s.start > now
  end

  function counter.settle(l, s, now)
    local changed = false
    while now - s.start >= l.window do
      changed = true
      if s.previous == 0 and s.current == 0 then
        s.start = aligned(now, l.window)
      else
        s.start, s.previous, s.current = saturate(s.start + l.window), s.current, 0
      end
    end
    return changed
  end

  function counter.expires(l, s)
    if s.current > 0 then return saturate(s.start + l.window * 2) end
    if s.previous > 0 then return saturate(s.start + l.window) end
    return 0
  end

  local function estimate(l, s, now)
    local overlap = l.window - (now - s.start)
    local weighted
    if l.up then
      weighted = muldiv_up(s.previous, overlap, l.window)
    else
      weighted = (muldiv(s.previous, overlap, l.window))
    end
    return saturate(s.current + weighted)
  end

  function counter.pass(l, s, cost, now)
    if cost > l.count then return NEVER end
    if estimate(l, s, now) <= l.count - cost then return now end
    return LATER
  end

  function counter.spend(_, s, cost)
    s.current = saturate(s.current + cost)
  end

  function counter.put(_, s, amount)
    local from_current = min(amount, s.current)
    s.current = s.current - from_current
    s.previous = max(s.previous - (amount - from_current), 0)
  end

  function counter.available(l, s, max_amount, now)
    return min(max(l.count - estimate(l, s, now), 0), max_amount)
  end

  function counter.keep_leased(_, s, _, held)
    s.current = max(s.current, held)
  end

  function counter.lease_ends(l, s)
    return saturate(s.start + l.window)
  end

  return counter
end

makers[8] = function()
  local tally = { counts_first = true }

  function tally.params(text, at)
    local l = {}
    l.limit, l.period, at = unpack_bytes('<I8I8', text, at)
    l.slack = slack_of(l.period)
    return l, at
  end

  function tally.read(_, text)
    local count, start = match(text, '^(%d+)@(%d+)$')
    count, start = kernels.codec.exact(count), kernels.codec.exact(start)
    return count and start and { count = count, start = start }
  end

  function tally.write(_, s)
    return fmt('%.0f@%.0f', s.count, s.start)
  end

  function tally.fresh(l, now)
    return { start = aligned(now, l.period), count = 0 }
  end

  function tally.is_set_back(l, s, now)
    return s.start > now + l.slack
  end

  function tally.settle(l, s, now)
    if now < saturate(s.start + l.period) then return false end
    s.start, s.count = aligned(now, l.period), 0
    return true
  end

  function tally.expires(l, s)
    if s.count == 0 then return 0 end
    return saturate(s.start + l.period)
  end

  function tally.pass(l, s, cost, now)
    if cost > l.limit then return NEVER end
    if cost <= l.limit - s.count then return now end
    return LATER
  end

  function tally.spend(_, s, cost)
    s.count = saturate(s.count + cost)
  end

  function tally.put(_, s, amount)
    s.count = max(s.count - amount, 0)
  end

  return tally
end

-- Everything passes, or nothing does. A closed limit keeps its state.

local function without_state(passes)
  return {
    params = function(_, at) return {}, at end,
    read = function(_, text)
      local used = not passes and kernels.codec.exact(match(text, '^x(%d+)$'))
      return used and { used = used }
    end,
    write = function(_, s) return fmt('x%.0f', s.used) end,
    fresh = function() return {} end,
    is_set_back = function() return false end,
    settle = function() return false end,
    expires = function(_, s) return s.used and EXACT_MAX or 0 end,
    pass = function(_, _, _, now) return passes and now or NEVER end,
    spend = function() end,
    put = function(_, s, amount)
      if s.used then s.used = max(s.used - amount, 0) end
    end,
    available = function(_, _, max_amount) return passes and max_amount or 0 end,
  }
end

makers[0] = function() return without_state(true) end
makers[1] = function() return without_state(false) end
