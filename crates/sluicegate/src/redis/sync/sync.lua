-- What nodes have counted by themselves, told to each other. See `sync/mod.rs` for what is told and what is answered.

-- So much longer than it is of use everything is kept: a reset has to be known to whoever is late.
local SLACK_MS = 60000
-- Where the time is told, nothing runs out by itself.
local TOLD_MS = 3600000
local EPOCH = 'epoch'

local told_now = ARGV[1]
local node = ARGV[2]
local now
if told_now == '' then
  local t = redis.call('TIME')
  now = t[1] * 1000000 + t[2]
else
  now = tonumber(told_now)
end

-- The series of a text that are still of use, in their order.
local function read(text)
  local all = {}
  local pattern = '([^%s=]+)=(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)'
  for name, over, start, admitted, given, before, was_admitted, was_given in string.gmatch(text, pattern) do
    local series = {
      name = name, over = tonumber(over),
      start = tonumber(start), admitted = tonumber(admitted), given = tonumber(given),
      before = tonumber(before), was_admitted = tonumber(was_admitted), was_given = tonumber(was_given),
    }
    if series.over > now then all[#all + 1] = series end
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

-- Two accounts of the same windows by the same node: of each window the one that has counted further, of all windows the last two.
local function merge(one, other)
  if other.start > one.start then one, other = other, one end
  local start, admitted, given = other.start, other.admitted, other.given
  if start == one.start then
    one.admitted, one.given = math.max(one.admitted, admitted), math.max(one.given, given)
    start, admitted, given = other.before, other.was_admitted, other.was_given
  end
  if start == one.before then
    one.was_admitted, one.was_given = math.max(one.was_admitted, admitted), math.max(one.was_given, given)
  elseif start > one.before then
    one.before, one.was_admitted, one.was_given = start, admitted, given
  end
  one.over = math.max(one.over, other.over)
  return one
end

local function merge_all(kept, pushed)
  local places = {}
  for i = 1, #pushed do places[pushed[i].name] = i end
  for i = 1, #kept do
    local place = places[kept[i].name]
    if place then
      pushed[place] = merge(pushed[place], kept[i])
    else
      -- Of limits that this node has no longer; others may.
      pushed[#pushed + 1] = kept[i]
    end
  end
  return pushed
end

-- Everything that is kept under a key. What is no hash is not ours, and in the way.
local function load(key)
  local list = redis.pcall('HGETALL', key)
  if list.err then
    redis.call('DEL', key)
    list = {}
  end
  local epoch, names, texts = 0, {}, {}
  for i = 1, #list, 2 do
    if list[i] == EPOCH then
      epoch = tonumber(list[i + 1]) or 0
    else
      names[#names + 1], texts[#texts + 1] = list[i], list[i + 1]
    end
  end
  return epoch, names, texts
end

local function add(sums, order, name, start, net)
  local id = name .. '=' .. string.format('%.0f', start)
  if not sums[id] then
    sums[id] = 0
    order[#order + 1] = id
  end
  sums[id] = sums[id] + net
end

local function answer(key, op, told_epoch, text)
  local epoch, names, texts = load(key)
  if op == '!' then
    epoch = math.max(epoch, told_epoch) + 1
    redis.call('DEL', key)
    redis.call('HSET', key, EPOCH, string.format('%.0f', epoch))
    names = {}
  elseif op == '+' and told_epoch > epoch then
    -- It was forgotten here that all of this is of no use any more.
    epoch = told_epoch
    redis.call('DEL', key)
    redis.call('HSET', key, EPOCH, string.format('%.0f', epoch))
    names = {}
  end
  local pushes = op == '+' and told_epoch == epoch
  local own, last = '', 0
  local sums, order, useless = {}, {}, {}
  for i = 1, #names do
    local kept = read(texts[i])
    if names[i] == node then
      own = texts[i]
    elseif #kept == 0 then
      useless[#useless + 1] = names[i]
    else
      for j = 1, #kept do
        local s = kept[j]
        last = math.max(last, s.over)
        add(sums, order, s.name, s.start, s.admitted - s.given)
        if s.before > 0 then add(sums, order, s.name, s.before, s.was_admitted - s.was_given) end
      end
    end
  end
  if op ~= '?' then
    local pushed = read(text)
    if pushes then
      pushed = merge_all(read(own), pushed)
      if #pushed > 0 then redis.call('HSET', key, node, write(pushed)) end
    end
    for i = 1, #pushed do last = math.max(last, pushed[i].over) end
    for i = 1, #useless do redis.call('HDEL', key, useless[i]) end
    local ms = TOLD_MS
    if told_now == '' then ms = math.max(math.ceil((last - now) / 1000), 0) + SLACK_MS end
    redis.call('PEXPIRE', key, string.format('%.0f', ms))
  end
  local others = {}
  for i = 1, #order do others[i] = string.format('%s,%.0f', order[i], sums[order[i]]) end
  return { epoch, op == '?' and own or '', table.concat(others, ' ') }
end

local answers = { now }
for i = 1, #KEYS do
  local at = 3 * i
  answers[i + 1] = answer(KEYS[i], ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2])
end
return answers
