-- Concurrency limit. A sorted set has the holders by the end of their lease: `holder`, or
-- `holder*slots` if it holds more than one. The record has their sum.

makers[7] = function()
  local slots = { has_set = true, is_held = true }
  local codec = kernels.codec

  function slots.params(text, at)
    local l = {}
    l.max, l.lease, at = unpack_bytes('<I8I8', text, at)
    l.slack = slack_of(l.lease)
    return l, at
  end

  function slots.read(_, text, key)
    local seen, held = match(text, '^(%d+):(%d+)$')
    local s = { key = key, seen = codec.exact(seen), held = codec.exact(held), count = codec.members(key) }
    -- A holder has at least one slot.
    return s.seen and s.held and s.count and s.count <= s.held and s
  end

  function slots.write(_, s)
    return fmt('%.0f:%.0f', s.seen, s.held)
  end

  function slots.fresh(_, _, key)
    return { key = key, seen = 0, held = 0, count = 0, cleared = false }
  end

  function slots.is_set_back(l, s, now)
    return s.seen > now + l.slack
  end

  local function slots_of(member)
    if match(member, '^%x+$') then return 1 end
    return codec.within(codec.exact(match(member, '^%x+%*(%d+)$')) or 0, 1, EXACT_MAX)
  end

  function slots.settle(_, s, now)
    if s.count == 0 then return false end
    local to = fmt('%.0f', now)
    local gone = call('ZRANGE', s.key, '-inf', to, 'BYSCORE')
    if #gone == 0 then return false end
    s.count = s.count - #gone
    for i = 1, #gone do s.held = codec.within(s.held - slots_of(gone[i]), s.count, EXACT_MAX) end
    call('ZREMRANGEBYSCORE', s.key, '-inf', to)
    return true
  end

  -- End of the last lease.
  function slots.expires(_, s)
    if s.count == 0 then return 0 end
    return codec.moment(call('ZRANGE', s.key, -1, -1, 'WITHSCORES')[2])
  end

  -- Member and end of a holder's lease; nil if it has none.
  local function lease_of(s, holder)
    if s.count == 0 then return nil end
    local score = call('ZSCORE', s.key, holder)
    if score then return holder, codec.moment(score) end
    if s.held == s.count then return nil end
    local all = call('ZRANGE', s.key, 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 17) == holder .. '*' then return all[i], codec.moment(all[i + 1]) end
    end
    return nil
  end

  -- When `wanted` slots will be free, and how many of them are not the holder's own.
  local function free_at(s, wanted, own)
    local freed, others = 0, 0
    for from = 0, s.count - 1, CHUNK do
      local some = call('ZRANGE', s.key, from, from + CHUNK - 1, 'WITHSCORES')
      for i = 1, #some, 2 do
        local held = slots_of(some[i])
        freed = freed + held
        if some[i] ~= own then others = others + held end
        if freed >= wanted then return codec.moment(some[i + 1]), others end
      end
    end
    return 0, 0
  end

  function slots.view_for(l, s, cost, _, holder)
    local member, mine_until = nil, nil
    if holder then member, mine_until = lease_of(s, holder) end
    s.view = { member = member, mine_until = mine_until }
    -- For a holder too: a peek ignores who it is.
    if s.held + cost > l.max then
      s.view.free_at, s.view.freed = free_at(s, s.held + cost - l.max, member)
    end
  end

  -- Reports the leases that must end before the cost fits, the others, and the holder's own.
  function slots.report(_, s, out)
    local v, mine = s.view, 0
    if v.member then mine = slots_of(v.member) end
    local freed = v.freed or 0
    out[#out + 1] = v.free_at or 0
    out[#out + 1] = freed
    out[#out + 1] = slots.expires(nil, s)
    out[#out + 1] = codec.within(s.held - freed - mine, 0, EXACT_MAX)
    out[#out + 1] = v.mine_until or 0
    out[#out + 1] = mine
  end

  function slots.holds(s)
    return s.view.member ~= nil
  end

  function slots.pass(l, s, cost, now)
    if cost > l.max then return NEVER end
    if s.held + cost <= l.max then return now end
    return LATER
  end

  function slots.hold(l, s, holder, cost, now)
    s.seen = max(s.seen, now)
    local ends = saturate(s.seen + l.lease)
    if s.view.member then
      call('ZADD', s.key, fmt('%.0f', max(s.view.mine_until, ends)), s.view.member)
      return
    end
    if s.cleared == false then
      call('DEL', s.key)
      s.cleared = true
    end
    local member = cost == 1 and holder or fmt('%s*%.0f', holder, cost)
    call('ZADD', s.key, fmt('%.0f', ends), member)
    s.held, s.count = s.held + cost, s.count + 1
  end

  function slots.spend() end

  function slots.put() end

  function slots.available(l, s, most)
    return min(max(l.max - s.held, 0), most)
  end

  return slots
end
