/**
 * What is lent by state, in the scripts of the authority: calls of the day, calls in flight, and money. What a node says that it holds
 * takes the place of what was known, and what it is lent more is added. Main thread; numbers and keys are those of valkey-lua.ts.
 */

const SHARE_OF = `
local function share_of(left, least, most)
  if most <= 0 or left < max(1, least) then return 0 end
  return min(most, max(least, ceil(left / SHARE)))
end
`;

/**
 * Day and slots: d is of all [day, used by lives that have ended, used, unused, slots, total that was seen before a loss], n of the
 * node [day, used, unused, slots, its buckets of the minute, its last grant of the minute: life, number of the ask, tick, count].
 */
const DAY_AND_SLOTS = `
local function answer_day(d, n, ask, now)
  local limit, said_day, used, unused, least, most = ask[1], ask[2], ask[3], ask[4], ask[5], ask[6]
  local day = max(d[1], floor((now + ZONE) / DAY), said_day)
  if day > d[1] then
    d[1], d[2], d[3], d[4], d[6] = day, 0, 0, 0, 0
  end
  if n[1] == d[1] then
    d[3], d[4] = d[3] - n[2], d[4] - n[3]
  end
  if said_day ~= day then used, unused = 0, 0 end
  d[3], d[4] = d[3] + used, d[4] + unused
  -- Nodes that nobody knows any more used what the others saw and do not have themselves.
  if most > 0 and d[6] > 0 then
    d[2], d[6] = max(d[2], d[6] - d[3] - d[4]), 0
  end
  local left = limit - d[2] - d[3] - d[4]
  local granted = share_of(left, least, most)
  local elsewhere = d[4] > unused
  d[4] = d[4] + granted
  n[1], n[2], n[3] = day, used, unused + granted
  return {granted, max(0, left - granted), elsewhere, day, (day + 1) * DAY - ZONE - now}
end
local function answer_slots(d, n, ask)
  local limit, outstanding, least, most = ask[1], ask[2], ask[3], ask[4]
  d[5] = d[5] - n[4] + outstanding
  local left = limit - d[5]
  local granted = share_of(left, least, most)
  local elsewhere = d[5] > outstanding
  n[4] = outstanding + granted
  d[5] = d[5] + granted
  return {granted, max(0, left - granted), elsewhere}
end
-- Slots of nodes that were silent for too long are free: such a node has cut its calls.
local function drop_silent_slots(key, d, place, now, expiry)
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    local who = string.match(all[i], '^n:(.*)$')
    if who and who ~= place then
      local known = node_of(KEYS[2], who)
      local record = cmsgpack.unpack(all[i + 1])
      if record[4] > 0 and (not known or now - known[3] > expiry) then
        d[5] = d[5] - record[4]
        record[4] = 0
        call('HSET', key, all[i], pack(record))
      end
    end
  end
end
`;

/** Money: a is of all [credited, version of it, spent, outstanding], each amount two numbers. Every ask says
 * what its host's copy of the registry has as credited: the newest copy counts. */
export const MONEY_LUA = `
local function answer_money(key, place, host, ask)
  local got = call('HMGET', key, 'a', 'h:' .. host, 'n:' .. place)
  local a = unpack_or(got[1], {0, 0, -1, 0, 0, 0, 0})
  local spent, credited = ask[7], ask[8]
  if credited and credited[3] > a[3] then a[1], a[2], a[3] = credited[1], credited[2], credited[3] end
  if spent then
    local known = unpack_or(got[2], {0, 0, -1})
    if spent[3] > known[3] then
      a[4], a[5] = sub(a[4], a[5], known[1], known[2])
      a[4], a[5] = add(a[4], a[5], spent[1], spent[2])
      call('HSET', key, 'h:' .. host, pack(spent))
    end
  end
  local own = unpack_or(got[3], {0, 0})
  a[6], a[7] = sub(a[6], a[7], own[1], own[2])
  local elsewhere = is_positive(a[6], a[7])
  a[6], a[7] = add(a[6], a[7], ask[1], ask[2])
  local lh, ll = sub(a[1], a[2], a[4], a[5])
  lh, ll = sub(lh, ll, a[6], a[7])
  local gh, gl = 0, 0
  if is_positive(ask[5], ask[6]) and is_positive(lh, ll) and not less(lh, ll, ask[3], ask[4]) then
    gh, gl = quarter_up(lh, ll)
    if less(gh, gl, ask[3], ask[4]) then gh, gl = ask[3], ask[4] end
    if less(ask[5], ask[6], gh, gl) then gh, gl = ask[5], ask[6] end
  end
  a[6], a[7] = add(a[6], a[7], gh, gl)
  lh, ll = sub(lh, ll, gh, gl)
  if lh < 0 then lh, ll = 0, 0 end
  local nh, nl = add(ask[1], ask[2], gh, gl)
  local holds = is_positive(nh, nl)
  call('HSET', key, 'a', pack(a))
  if holds then call('HSET', key, 'n:' .. place, pack({nh, nl}))
  elseif got[3] then call('HDEL', key, 'n:' .. place) end
  return {gh, gl, lh, ll, elsewhere}, holds, got[3] and true or false
end
`;

export const DAY_AND_SLOTS_LUA = SHARE_OF + DAY_AND_SLOTS;
