-- GCRA (greedy and leaky bucket, smooth bursty), and the smooth limiter with warm-up.

makers[2] = function()
  local meter = {}

  function meter.params(text, at)
    local l = {}
    l.variant, l.units, l.micros, l.capacity, l.full, l.full_frac, l.start, l.start_frac, l.forget, at =
      unpack_bytes('<I8I8I8I8I8I8I8I8I8', text, at)
    l.starts_short = l.start > 0 or l.start_frac > 0
    l.slack = slack_of(ceil_of(l.full, l.full_frac))
    return l, at
  end

  function meter.read(_, text)
    local mark, rest = match(text, '^([^,]*)(.*)$')
    local us, frac = kernels.codec.mark(mark)
    local s = us and kernels.codec.fields({ us = us, frac = frac }, rest, 'esh')
    if s then s.extra = s.extra or 0 end
    return s
  end

  function meter.write(_, s)
    local text = tat_text(s.us, s.frac)
    if s.extra > 0 then text = text .. fmt(',e%.0f', s.extra) end
    if s.seen then text = text .. fmt(',s%.0f', s.seen) end
    if s.hole then text = text .. fmt(',h%.0f', s.hole) end
    return text
  end

  function meter.fresh(l, now)
    return { us = l.start + now, frac = l.start_frac, extra = 0, seen = l.starts_short and now or nil }
  end

  function meter.is_set_back(l, s, now)
    -- The fraction is of another rate.
    if s.frac >= l.units then return true end
    local written = s.seen or ceil_of(earlier(l.units, s.us, s.frac, l.full, l.full_frac))
    return written > now + l.slack
  end

  function meter.settle(_, s, now)
    if s.hole and s.hole <= now then
      s.hole = nil
      return true
    end
    return false
  end

  function meter.expires(l, s)
    local drained = ceil_of(s.us, s.frac)
    if s.seen and (l.starts_short or s.extra > 0) then
      return forgotten_at(s.seen, drained, l.forget)
    end
    return drained
  end

  -- Whether a TAT exceeds the bucket: a debt.
  local function beyond_brim(l, us, frac, now)
    return is_later(us, frac, l.full + now, l.full_frac)
  end

  local function in_use_until(s, now)
    if s.us >= now then return s.us, s.frac end
    return now, 0
  end

  local function poured(l, s, cost, now)
    local us, frac = in_use_until(s, now)
    return later(l.units, us, frac, muldiv(cost, l.micros, l.units))
  end

  function meter.pass(l, s, cost, now)
    if l.variant == SMOOTH then
      if beyond_brim(l, s.us, s.frac, now) then return LATER end
      return now
    end
    local pours = cost
    if l.variant == BUCKET then
      pours = cost - s.extra
      if pours <= 0 then return now end
    end
    if pours > l.capacity then return NEVER end
    local us, frac = poured(l, s, pours, now)
    if beyond_brim(l, us, frac, now) then return LATER end
    if l.variant == QUEUE then return max(ceil_of(s.us, s.frac), now) end
    return now
  end

  -- Stores the time of writing if the TAT alone does not imply it.
  local function stamp(l, s, now)
    if l.starts_short or s.extra > 0 or beyond_brim(l, s.us, s.frac, now) then
      s.seen = max(s.seen or now, now)
    else
      s.seen = nil
    end
  end

  function meter.spend(l, s, cost, now)
    local from_extra = min(cost, s.extra)
    s.extra = s.extra - from_extra
    s.us, s.frac = poured(l, s, cost - from_extra, now)
    stamp(l, s, now)
  end

  function meter.put(l, s, amount, now)
    s.us, s.frac = earlier(l.units, s.us, s.frac, muldiv(amount, l.micros, l.units))
    s.us, s.frac = in_use_until(s, now)
    stamp(l, s, now)
  end

  function meter.time_of(l, amount)
    return muldiv(amount, l.micros, l.units)
  end

  -- The use is at least what is leased now, and at each past end what was leased until then.
  function meter.keep_leased(l, s, leases, held, now)
    if l.variant ~= BUCKET then return end
    local us, frac = s.us, s.frac
    local function keep(amount, from)
      if amount == 0 then return end
      local to_us, to_frac = later(l.units, from, 0, muldiv(amount, l.micros, l.units))
      if is_later(to_us, to_frac, us, frac) then us, frac = to_us, to_frac end
    end
    keep(held, now)
    for i = #leases, 1, -1 do
      if leases[i].ends <= now then
        held = saturate(held + leases[i].amount)
        keep(held, leases[i].ends)
      end
    end
    if us == s.us and frac == s.frac then return end
    s.us, s.frac = us, frac
    stamp(l, s, now)
  end

  function meter.available(l, s, max_amount, now)
    local us, frac = in_use_until(s, now)
    if beyond_brim(l, us, frac, now) then return 0 end
    if l.variant == SMOOTH then return max_amount end
    local free = units_in(l.units, l.micros, earlier(l.units, l.full + now, l.full_frac, us, frac))
    return min(saturate(free + s.extra), max_amount)
  end

  return meter
end

-- Warm-up: when the limiter is free, and how cold it is, as the time in which its permits were
-- stored.

makers[6] = function()
  local TICKS = 16384

  local warm_up = {}

  function warm_up.params(text, at)
    local l = {}
    l.units, l.micros, l.permits, l.time, l.length, l.factor, l.threshold, at =
      unpack_bytes('<I8I8I8I8I8I8I8', text, at)
    l.narrow, l.wide = l.factor + 1000, l.factor + 5000
    l.slack = slack_of(l.length)
    return l, at
  end

  function warm_up.read(_, text)
    local free, cool, seen = match(text, '^([^~]+)~([^~]+)~(%d+)$')
    if not free then return nil end
    local s = { seen = kernels.codec.exact(seen) }
    s.us, s.frac = kernels.codec.mark(free)
    s.cool, s.cool_frac = kernels.codec.mark(cool)
    return s.us and s.cool and s.seen and s
  end

  function warm_up.write(_, s)
    return tat_text(s.us, s.frac) .. '~' .. tat_text(s.cool, s.cool_frac) .. fmt('~%.0f', s.seen)
  end

  function warm_up.fresh(l, now)
    return { us = now, frac = 0, cool = l.length, cool_frac = 0, seen = now }
  end

  function warm_up.is_set_back(l, s, now)
    return s.seen > now + l.slack or s.frac >= l.units or s.cool_frac >= l.permits
  end

  function warm_up.settle(l, s, now)
    local free = ceil_of(s.us, s.frac)
    if free >= now then return false end
    s.cool = saturate(s.cool + (now - free))
    if s.cool >= l.length then s.cool, s.cool_frac = l.length, 0 end
    s.us, s.frac = now, 0
    return true
  end

  function warm_up.expires(l, s)
    local missing = ceil_of(earlier(l.permits, l.length, 0, s.cool, s.cool_frac))
    return saturate(ceil_of(s.us, s.frac) + missing)
  end

  function warm_up.pass(_, s, _, now)
    if ceil_of(s.us, s.frac) > now then return LATER end
    return now
  end

  -- Stored time in ticks; at max_amount the warm-up period is used.
  local function ticks_of(l, us, frac)
    if us >= l.length then us, frac = l.length, 0 end
    return us * TICKS + (muldiv(frac, TICKS, l.permits))
  end

  -- Cost of the stored time `us` beyond the stable interval.
  local function premium(l, s, us, frac)
    local above = max(ticks_of(l, s.cool, s.cool_frac) - l.threshold, 0)
    local taken = min(ticks_of(l, us, frac), above)
    above = (muldiv(above, l.wide, l.narrow * 2))
    taken = (muldiv(taken, l.wide, l.narrow * 2))
    local steep = (muldiv(max(above * 2 - taken, 0), l.factor * l.factor - 1000000, 4000000))
    return divide_up(muldiv_up(taken, steep, l.length * TICKS), TICKS)
  end

  function warm_up.spend(l, s, cost, now)
    local cool, cool_frac = muldiv(cost, l.time, l.permits)
    local more = premium(l, s, cool, cool_frac)
    local us, frac = muldiv(cost, l.micros, l.units)
    us = saturate(us + more)
    if is_later(cool, cool_frac, s.cool, s.cool_frac) then cool, cool_frac = s.cool, s.cool_frac end
    s.cool, s.cool_frac = earlier(l.permits, s.cool, s.cool_frac, cool, cool_frac)
    -- A hit in the microsecond in which the limiter gets free leaves the fraction to the next.
    if ceil_of(s.us, s.frac) < now then s.us, s.frac = now, 0 end
    s.us, s.frac = later(l.units, s.us, s.frac, us, frac)
    s.seen = max(s.seen, now)
  end

  function warm_up.put(l, s, amount, now)
    s.us, s.frac = earlier(l.units, s.us, s.frac, muldiv(amount, l.micros, l.units))
    if s.us < now then s.us, s.frac = now, 0 end
    s.seen = max(s.seen, now)
  end

  function warm_up.available(l, s, max_amount, now)
    if ceil_of(s.us, s.frac) > now then return 0 end
    return max_amount
  end

  return warm_up
end
