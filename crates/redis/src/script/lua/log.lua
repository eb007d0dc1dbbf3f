-- Sliding log. A sorted set has the entries and the record their sums: a decision finds entries by
-- time or rank, and reads few of them. With slices, each slice has one entry, at its end.

makers[5] = function()
  local ENTRIES_MAX = 10000
  local codec = kernels.codec

  local log = { has_set = true }

  function log.params(text, at)
    local l, count, denied = { weight_max = {}, length = {} }, 0, 0
    count, l.gap, denied, l.slice, at = unpack_bytes('<I8I8I8I8', text, at)
    l.denied, l.retention, l.longest, l.capacity, l.kept = denied == 1, l.gap, 0, EXACT_MAX, 0
    for i = 1, count do
      local weight_max, length
      weight_max, length, at = unpack_bytes('<I8I8', text, at)
      l.weight_max[i], l.length[i] = weight_max, length
      l.longest, l.retention = max(l.longest, length), max(l.retention, length)
      l.capacity, l.kept = min(l.capacity, weight_max), max(l.kept, weight_max)
    end
    l.slack = slack_of(l.retention)
    return l, at
  end

  function log.read(_, text, key)
    local seen, sum, denied, first, last, sequence = match(text, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)$')
    local s = { key = key, count = codec.members(key) }
    s.seen, s.sum, s.denied = codec.exact(seen), codec.exact(sum), codec.exact(denied)
    s.first, s.last, s.sequence = codec.exact(first), codec.exact(last), codec.exact(sequence)
    if not (s.seen and s.sum and s.denied and s.first and s.last and s.sequence) then return nil end
    -- The minimum weight is 1.
    if not s.count or s.count > s.sum or s.denied > s.sum or s.first > s.last then return nil end
    return s
  end

  function log.write(_, s)
    return fmt('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f', s.seen, s.sum, s.denied, s.first, s.last, s.sequence)
  end

  function log.fresh(_, now, key)
    -- Remaining members of the set are stale.
    return { key = key, seen = now, sum = 0, denied = 0, first = 0, last = 0, sequence = 0, count = 0, cleared = false }
  end

  -- Time of the entry for a hit.
  local function entry_time(l, at)
    if l.slice == 0 then return at end
    return saturate(aligned(at, l.slice) + l.slice)
  end

  function log.is_set_back(l, s, now)
    -- Bookings are future entries.
    return s.seen > now + l.slack or s.last > entry_time(l, max(now, s.seen))
  end

  -- Unsupported: refunds, folding the oldest entries, dropping obsolete denied ones, inexact
  -- numbers.
  local NONE = { sum = 0, denied = 0, count = 0, seen = 0 }

  function log.is_beyond(l, s, op, cost, times, now)
    s = s or NONE
    if op == 'refund' and s.count > 0 then return true end
    if s.sum + cost * times >= EXACT_MAX then return true end
    if l.denied and op == 'hit' and s.denied + cost * times >= l.kept * 2 then return true end
    if s.count + times <= ENTRIES_MAX then return false end
    -- Hits alone never fill it: all entries are within the longest window and weigh at least one.
    return op ~= 'hit' or s.seen > now or l.retention > l.longest
  end

  local function weight_of(member)
    local digits, mark = match(member, '%-(%d+)(d?)$')
    local weight = codec.exact(digits)
    if not weight then
      codec.unreadable, weight = true, 0
    end
    return weight, mark == 'd'
  end

  local function weigh(members)
    local own, denied = 0, 0
    for i = 1, #members do
      local weight, is_denied = weight_of(members[i])
      if is_denied then
        denied = denied + weight
      else
        own = own + weight
      end
    end
    return own, denied
  end

  function log.settle(l, s, now)
    local edge = now - l.retention
    if s.count == 0 or s.first > edge then return false end
    if s.last <= edge then
      -- All entries have expired.
      call('DEL', s.key)
      s.sum, s.denied, s.count, s.last = 0, 0, 0, 0
      return true
    end
    local to = fmt('%.0f', edge)
    local gone = call('ZRANGE', s.key, '-inf', to, 'BYSCORE')
    local own, denied = weigh(gone)
    call('ZREMRANGEBYSCORE', s.key, '-inf', to)
    s.count, s.denied = s.count - #gone, codec.within(s.denied - denied, 0, EXACT_MAX)
    s.sum = codec.within(s.sum - own - denied, max(s.count, s.denied), EXACT_MAX)
    s.first = codec.moment(call('ZRANGE', s.key, 0, 0, 'WITHSCORES')[2])
    return true
  end

  function log.expires(l, s)
    if s.count == 0 then return 0 end
    return saturate(s.last + l.retention)
  end

  -- Weights of admitted and of denied entries up to a time.
  local function sums_until(s, moment)
    if s.count == 0 or s.first > moment then return 0, 0 end
    if s.last <= moment then return s.sum - s.denied, s.denied end
    local at = fmt('%.0f', moment)
    local older = call('ZCOUNT', s.key, '-inf', at)
    -- Only admitted entries of weight one: counting them is enough.
    if s.denied == 0 and s.count == s.sum then return older, 0 end
    if older * 2 <= s.count then return weigh(call('ZRANGE', s.key, '-inf', at, 'BYSCORE')) end
    local own, denied = weigh(call('ZRANGE', s.key, '(' .. at, '+inf', 'BYSCORE'))
    return s.sum - s.denied - own, s.denied - denied
  end

  local function weight_until(s, moment)
    local own, denied = sums_until(s, moment)
    return codec.within(own, 0, s.sum - s.denied), codec.within(denied, 0, s.denied)
  end

  -- Time of the entry with whose expiry a weight has left; nil if all of it is not enough.
  local function leaves_at(s, weight)
    if weight > s.sum then return nil end
    if s.count == s.sum then
      local rank = fmt('%.0f', weight - 1)
      local score = call('ZRANGE', s.key, rank, rank, 'WITHSCORES')[2]
      return score and codec.moment(score)
    end
    for from = 0, s.count - 1, CHUNK do
      local some = call('ZRANGE', s.key, from, from + CHUNK - 1, 'WITHSCORES')
      for i = 1, #some, 2 do
        weight = weight - (weight_of(some[i]))
        if weight <= 0 then return codec.moment(some[i + 1]) end
      end
    end
    return nil
  end

  -- Reads the last entry, which a hit of the same slice replaces.
  local function read_tail(s)
    local tail = call('ZRANGE', s.key, -1, -1, 'WITHSCORES')
    s.tail, s.tail_weight = tail[1], weight_of(tail[1])
    if codec.moment(tail[2]) ~= s.last or s.tail_weight > s.sum then codec.unreadable = true end
  end

  -- Use of each window for a cost, and `points`: times between which entries can be merged without
  -- changing an answer. These are the window edges, and the entries whose expiry makes room.
  function log.view_for(l, s, cost, now)
    local latest = max(now, s.seen)
    local points, own, all = {}, {}, {}
    local fits = l.gap == 0 or s.count == 0 or s.last + l.gap <= latest
    for i = 1, #l.weight_max do
      local edge = latest - l.length[i]
      local left, left_denied = weight_until(s, edge)
      own[i], all[i] = s.sum - s.denied - left, s.sum - left - left_denied
      if left + left_denied > 0 then points[#points + 1] = min(edge, s.last) end
      if all[i] + cost > l.weight_max[i] then fits = false end
      -- A debt is paid by the current clock, even if that went back.
      if all[i] + cost > l.weight_max[i] or s.seen > now and s.sum + cost > l.weight_max[i] then
        points[#points + 1] = leaves_at(s, s.sum + cost - l.weight_max[i])
      end
      -- A denied hit is in the log itself when its wait is computed.
      if l.denied and all[i] + cost * 2 > l.weight_max[i] then
        points[#points + 1] = leaves_at(s, s.sum + cost * 2 - l.weight_max[i])
      end
    end
    s.view = { fits = fits, own = own, all = all, points = points }
    if l.slice > 0 and s.count > 0 and not s.tail and s.last == entry_time(l, latest) then read_tail(s) end
  end

  -- Reports merged entries: the number of groups, and time and weights of each.
  function log.report(_, s, out)
    local points, index = s.view.points, #out + 1
    out[index] = 0
    if s.count == 0 then return end
    points[#points + 1] = s.last
    table.sort(points)
    local groups, own, denied = 0, 0, 0
    for i = 1, #points do
      local until_own, until_denied = weight_until(s, points[i])
      until_own, until_denied = codec.within(until_own, own, EXACT_MAX), codec.within(until_denied, denied, EXACT_MAX)
      if until_own > own or until_denied > denied then
        groups = groups + 1
        out[#out + 1] = points[i]
        out[#out + 1] = until_own - own
        out[#out + 1] = until_denied - denied
        own, denied = until_own, until_denied
      end
    end
    out[index] = groups
  end

  function log.pass(l, s, cost, now)
    if cost > l.capacity then return NEVER end
    if s.view.fits then return now end
    return LATER
  end

  local function enter(l, s, weight, now, mark)
    s.seen, s.sum = max(s.seen, now), s.sum + weight
    local at = entry_time(l, s.seen)
    if s.count == 0 then
      if s.cleared == false then call('DEL', s.key) end
      s.first, s.sequence = at, 0
    elseif s.last ~= at then
      s.sequence = 0
    elseif s.tail then
      call('ZREM', s.key, s.tail)
      s.count, weight = s.count - 1, s.tail_weight + weight
    else
      s.sequence = s.sequence + 1
    end
    s.last, s.count = at, s.count + 1
    local member = fmt('%.0f-%05.0f-%.0f%s', at, s.sequence, weight, mark)
    call('ZADD', s.key, fmt('%.0f', at), member)
    if l.slice > 0 then s.tail, s.tail_weight = member, weight end
  end

  function log.spend(l, s, cost, now)
    if cost > 0 then enter(l, s, cost, now, '') end
  end

  function log.log_denied(l, s, cost, now)
    if not l.denied or cost > l.capacity then return end
    enter(l, s, cost, now, 'd')
    s.denied = s.denied + cost
  end

  -- Only for an empty log: otherwise it is unsupported.
  function log.put(_, s, _, now)
    s.seen = max(s.seen, now)
  end

  function log.available(l, s, weight_max, now)
    local latest = max(now, s.seen)
    if l.gap > 0 and s.count > 0 and s.last + l.gap > latest then return 0 end
    local left = weight_max
    for i = 1, #l.weight_max do
      left = min(left, l.weight_max[i] - s.view.own[i], max(l.weight_max[i] - s.view.all[i], 0))
    end
    return max(left, 0)
  end

  return log
end
