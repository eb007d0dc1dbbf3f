-- Header of a call: whether the clock is given, the time, and the numbers of parameter blocks and
-- of requests, which follow.

local given, now, params_count, request_count = unpack_bytes('<BI8I4I4', ARGV[1])
if given == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local NOW_MAX = 4503599627370495
if now > NOW_MAX then now = NOW_MAX end

local all_params, records, order = {}, {}, {}
for i = 1, params_count do all_params[i] = read_params(ARGV[1 + i]) end

local requests, at, key_index = ARGV[2 + params_count], 1, 1
local out = { now }

-- The record at `key_index`, read once per call.
local function record_of(params)
  local key = KEYS[key_index]
  local r = records[key]
  if not r then
    r = load_record(key_index, params, now)
    records[key] = r
    order[#order + 1] = r
  elseif r.params.fingerprint ~= params.fingerprint then
    -- Two rules of one identity in a call: the second one converts the record, optimistically.
    r = { is_unsupported = true, params = params }
  end
  return r
end

-- Writes all changed records.
local function save_all()
  for i = 1, #order do
    local r = order[i]
    if r.touched then close_record(r, now) end
    if r.unsaved then save(r, now, given == 1) end
  end
end
