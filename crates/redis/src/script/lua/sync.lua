-- Exchanges the counts of nodes. Arguments and reply are described in `sync/mod.rs`.

-- Lifetime beyond the end of a window, so that late nodes still see a reset.
local SLACK_MS = 60000
-- Lifetime if the clock is given.
local TOLD_MS = 3600000
local EPOCH = 'epoch'
local EXACT_MAX = 9007199254740991
-- Bound of sums over nodes: what a node can decode.
local SUM_MAX = 2 ^ 62

local told_now = ARGV[1]
local node = ARGV[2]
local now
if told_now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = tonumber(told_now)
end

-- An exact number that is not negative; nil for anything else.
local function exact(text)
  local n = string.match(text or '', '^%d+$') and tonumber(text)
  return n and n <= EXACT_MAX and n or nil
end

-- The unexpired series of a field, in order.
local NUMBERS = { 'over', 'start', 'admitted', 'given', 'before', 'was_admitted', 'was_given' }

local function read_series(name, ...)
  local series = { name = name }
  for i = 1, #NUMBERS do
    local number = exact((select(i, ...)))
    if not number then return nil end
    series[NUMBERS[i]] = number
  end
  return series
end

local function read(text)
  local all = {}
  for word in string.gmatch(text, '%S+') do
    local name, numbers = string.match(word, '^([^=]+)=(.*)$')
    local series = name
      and read_series(name, string.match(numbers, '^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$'))
    if series and series.over > now then all[#all + 1] = series end
  end
  return all
end

local function write(all)
  local texts = {}
  for i = 1, #all do
    local s = all[i]
    texts[i] = string.format('%s=%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f', s.name, s.over, s.start, s.admitted, s.given,
      s.before, s.was_admitted, s.was_given)
  end
  return table.concat(texts, ' ')
end

-- Merges two versions of a node's series: the maximum of each window, and the last two windows.
local function merge(one, other)
  if other.start > one.start then one, other = other, one end
  local all = {}
  for field, value in pairs(one) do all[field] = value end
  local start, admitted, given = other.start, other.admitted, other.given
  if start == all.start then
    all.admitted, all.given = math.max(all.admitted, admitted), math.max(all.given, given)
    start, admitted, given = other.before, other.was_admitted, other.was_given
  end
  if start == all.before then
    all.was_admitted, all.was_given = math.max(all.was_admitted, admitted), math.max(all.was_given, given)
  elseif start > all.before then
    all.before, all.was_admitted, all.was_given = start, admitted, given
  end
  all.over = math.max(all.over, other.over)
  return all
end

local function named(all, name)
  for i = 1, #all do
    if all[i].name == name then return all[i] end
  end
end

-- Net admissions of the window with this start.
local function net(series, start)
  if not series then return 0 end
  if series.start == start then return series.admitted - series.given end
  if series.before == start then return series.was_admitted - series.was_given end
  return 0
end

local function window(series, start)
  return string.format('%s=%.0f', series.name, start)
end

-- Sum over all nodes in a window, and when it expires; nil if there is none.
local function total(text)
  local sum, over = string.match(text or '', '^(-?%d+),(%d+)$')
  sum, over = sum and tonumber(sum), exact(over)
  if not over or sum > SUM_MAX or sum < -SUM_MAX then return nil, nil end
  return sum, over
end

-- Merges the stored series of a node with a push. Returns the result, whether a window is new, and
-- the fields to write.
local function merge_all(kept, pushed, totals)
  local merged, writes, is_new = {}, {}, false
  for i = 1, #pushed do
    local told = pushed[i]
    local had = named(kept, told.name)
    local has = had and merge(told, had) or told
    merged[i] = has
    is_new = is_new or not had or has.start > had.start
    for place, start in ipairs({ told.start, told.before }) do
      -- A window that is no longer stored was counted already, or comes too late.
      local is_kept = start == has.start or start == has.before
      local more = is_kept and net(has, start) - net(had, start) or 0
      if more ~= 0 then
        local at = 2 * i - 2 + place
        local sum, over = total(totals[at])
        totals[at] = string.format('%.0f,%.0f', (sum or 0) + more, math.max(over or 0, told.over))
        writes[#writes + 1] = window(told, start)
        writes[#writes + 1] = totals[at]
      end
    end
  end
  for i = 1, #kept do
    -- Series that this node no longer has; others may.
    if not named(pushed, kept[i].name) then merged[#merged + 1] = kept[i] end
  end
  return merged, is_new, writes
end

-- Removes expired fields, whenever a node enters a new window.
local function clean(key)
  local list = redis.call('HGETALL', key)
  for i = 1, #list, 2 do
    local field, text = list[i], list[i + 1]
    local _, over = total(text)
    local is_useless
    if string.find(field, '=', 1, true) then
      is_useless = not over or over <= now
    else
      is_useless = field ~= EPOCH and field ~= node and #read(text) == 0
    end
    if is_useless then redis.call('HDEL', key, field) end
  end
end

local function keep(key, all)
  local ms = TOLD_MS
  if told_now == '' then
    local last = now
    for i = 1, #all do last = math.max(last, all[i].over) end
    ms = math.max(math.ceil((last - now) / 1000) + SLACK_MS, redis.call('PTTL', key))
  end
  redis.call('PEXPIRE', key, string.format('%.0f', ms))
end

local function begin_anew(key, epoch, all)
  redis.call('DEL', key)
  redis.call('HSET', key, EPOCH, string.format('%.0f', epoch))
  keep(key, all)
end

-- All sums, and the field of this node.
local function look_at_all(key)
  local list = redis.pcall('HGETALL', key)
  local fields = {}
  -- A key of another type is overwritten.
  for i = 1, (list.err and 0 or #list), 2 do fields[list[i]] = list[i + 1] end
  local own_text = fields[node] or ''
  local own, others = read(own_text), {}
  for field, text in pairs(fields) do
    local name, start = string.match(field, '^([^=]+)=(%d+)$')
    local sum, over = total(text)
    if name and sum and over > now then
      others[#others + 1] = string.format('%s,%.0f', field, sum - net(named(own, name), tonumber(start)))
    end
  end
  table.sort(others)
  return { exact(fields[EPOCH]) or 0, own_text, table.concat(others, ' ') }
end

local function answer(key, op, told_epoch, text)
  if op == '*' then return look_at_all(key) end
  local pushed = read(text)
  local fields = { EPOCH, node }
  for i = 1, #pushed do
    fields[2 * i + 1], fields[2 * i + 2] = window(pushed[i], pushed[i].start), window(pushed[i], pushed[i].before)
  end
  local kept = redis.pcall('HMGET', key, unpack(fields))
  if kept.err then
    redis.call('DEL', key)
    kept = {}
  end
  local epoch = exact(kept[1] or nil) or 0
  if op == '!' then
    epoch = math.min(math.max(epoch, told_epoch) + 1, EXACT_MAX)
    begin_anew(key, epoch, pushed)
    kept = {}
  elseif op == '+' and told_epoch > epoch then
    -- The store lost a reset that the node knows of.
    epoch = told_epoch
    begin_anew(key, epoch, pushed)
    kept = {}
  end
  local totals = {}
  for i = 3, #fields do totals[i - 2] = kept[i] end
  local own = read(kept[2] or '')
  if op == '+' and told_epoch == epoch and kept[2] ~= text then
    local merged, is_new, writes = merge_all(own, pushed, totals)
    own = merged
    redis.call('HSET', key, node, write(merged), unpack(writes))
    if is_new then
      clean(key)
      keep(key, merged)
    end
  end
  local others = {}
  for i = 1, #pushed do
    for place, start in ipairs({ pushed[i].start, pushed[i].before }) do
      local sum = total(totals[2 * i - 2 + place])
      if sum then
        local more = sum - net(named(own, pushed[i].name), start)
        others[#others + 1] = string.format('%s,%.0f', window(pushed[i], start), more)
      end
    end
  end
  return { epoch, '', table.concat(others, ' ') }
end

local answers = { now }
for i = 1, #KEYS do
  local at = 3 * i
  answers[i + 1] = answer(KEYS[i], ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2])
end
return answers
