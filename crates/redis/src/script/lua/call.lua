-- What every call is told first: whether the clock is given and what it says, how many sheets there are and how many asks. Sheets and asks follow.

local given, now, sheet_count, ask_count = unpack_bytes('<BI8I4I4', ARGV[1])
if given == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local NOW_MAX = 4503599627370495
if now > NOW_MAX then now = NOW_MAX end

local sheets, records, order = {}, {}, {}
for i = 1, sheet_count do sheets[i] = read_sheet(ARGV[1 + i]) end

local asks, at, key_place = ARGV[2 + sheet_count], 1, 1
local out = { now }

-- The record of the key at `key_place`, read once.
local function record_of(sheet)
  local key = KEYS[key_place]
  local r = records[key]
  if not r then
    r = load_record(key_place, sheet, now)
    records[key] = r
    order[#order + 1] = r
  elseif r.sheet.fingerprint ~= sheet.fingerprint then
    -- Two plans of one identity in one call: who comes second is brought over the long way.
    r = { long = true, sheet = sheet }
  end
  return r
end

-- Writes what was touched.
local function save_all()
  for i = 1, #order do
    local r = order[i]
    if r.touched then close_record(r, now) end
    if r.unsaved then save(r, now, given == 1) end
  end
end
