/**
 * The script of an exchange: one call carries the asks of a node to one partition, and does to its keys what MemoryAuthority
 * does to its objects. Main thread.
 *
 * KEYS: meta, nodes, awaited, held of the node; then for each ask the subject's two hashes.
 * ARGV: place, host, packed [incarnation, sequence, sent at (ms of the server's clock) or 0, time instead of the server's or 0, equal shares or 0, expiry ms],
 *       packed asks (see valkey-codec.ts), each [subject, minute, day, slots, money, inherited] with false where one is left out.
 * Answer: packed [status, now ms, epoch, ms to wait, answers, version of the list of nodes]. Status: ok, unknown (node: join), old (sequence), aged (or the clock
 * was set forward), report (join again, with all that is held), quarantine (wait; in the place of answers some of the places that have to report).
 */
import { LUA_PRELUDE } from './valkey-lua.js';
import { scriptOf } from './valkey-client.js';

const SHARE_OF = `
local function share_of(left, least, most)
  if most <= 0 or left < max(1, least) then return 0 end
  return min(most, max(least, ceil(left / SHARE)))
end
`;

/** The minute: buckets by tick of expiry, ascending, as one flat list of tick and count. */
const MINUTE = `
local function weigh(list, tick)
  local weighing, unexpired, kept = 0, 0, {}
  for i = 1, #list, 2 do
    if list[i] + WEIGHING >= tick and list[i + 1] > 0 then
      kept[#kept + 1] = list[i]
      kept[#kept + 1] = list[i + 1]
      weighing = weighing + list[i + 1]
      if list[i] >= tick then unexpired = unexpired + list[i + 1] end
    end
  end
  return kept, weighing, unexpired
end
local function put(list, tick, count)
  for i = 1, #list, 2 do
    if list[i] == tick then
      list[i + 1] = max(0, list[i + 1] + count)
      return
    end
    if list[i] > tick then
      if count > 0 then
        table.insert(list, i, count)
        table.insert(list, i, tick)
      end
      return
    end
  end
  if count > 0 then
    list[#list + 1] = tick
    list[#list + 1] = count
  end
end
local function count_at(list, tick)
  for i = 1, #list, 2 do if list[i] == tick then return list[i + 1] end end
  return 0
end
local function free_in(list, weighing, limit, now)
  if weighing < limit then return 0 end
  for i = 1, #list, 2 do
    weighing = weighing - list[i + 1]
    if weighing < limit then return (list[i] + WEIGHING + 1) * TICK - now end
  end
  return 0
end
local function answer_minute(list, own, ask, now, holders)
  local limit, least, most, forMs, returned = ask[1], ask[2], ask[3], ask[4], ask[5]
  local tick = floor(now / TICK)
  for i = 1, #returned, 2 do
    -- Never more than the node was lent: what is not there is of a bucket that weighs no more.
    local count = min(returned[i + 1], count_at(own, returned[i]))
    put(list, returned[i], -count)
    put(own, returned[i], -count)
  end
  limit = limit - holders(limit)
  local all, weighing, unexpired = weigh(list, tick)
  local mine, _, own_unexpired = weigh(own, tick)
  local granted = share_of(limit - weighing, least, most)
  weighing = weighing + granted
  local last = tick + SHORT
  if weighing * QUIET <= limit then last = tick + min(LONG, max(SHORT, ceil(forMs / TICK))) end
  put(all, last, granted)
  put(mine, last, granted)
  local reply = {granted, max(0, limit - weighing), unexpired > own_unexpired, last, (last + 1) * TICK - now,
    free_in(all, weighing, limit, now)}
  return reply, all, mine
end
`;

/**
 * Day and slots: d is of all [day, used by lives that have ended, used, unused, slots, total that was seen before a loss], n of the
 * node [day, used, unused, slots, its buckets of the minute].
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
const MONEY = `
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

const EXCHANGE = `
local place, host = ARGV[1], ARGV[2]
local head = cmsgpack.unpack(ARGV[3])
local incarnation, sequence, expiry = head[1], head[2], head[6]
local now = now_ms(head[4])
local epoch, till, lost, places = epoch_of(KEYS[1], KEYS[2], KEYS[3], now)
if not epoch then return pack({'unknown', now, '', 0}) end
local node = node_of(KEYS[2], place)
if not node or node[1] ~= incarnation then return pack({'unknown', now, epoch, 0}) end
if sequence <= node[2] then return pack({'old', now, epoch, 0}) end
if head[3] > 0 and now - head[3] > AGE then return pack({'aged', now, epoch, 0}) end
if head[5] > 0 and now - node[3] > SILENT then node[5] = now end
node[2], node[3] = sequence, now
call('HSET', KEYS[2], place, pack(node))
if node[4] ~= epoch then return pack({'report', now, epoch, max(0, till - now)}) end
if call('SCARD', KEYS[3]) > 0 then
  if now > lost + expiry then drop_silent_awaited(KEYS[1], KEYS[3], epoch) end
  return pack({'quarantine', now, epoch, max(TICK, till - now), call('SRANDMEMBER', KEYS[3], 3)})
end
if now < till then return pack({'quarantine', now, epoch, max(0, till - now)}) end

-- Permits that silent nodes may be giving themselves, as equal shares: held back until they have spoken for a window again.
local silent = -1
local function holders(limit)
  if head[5] == 0 then return 0 end
  if silent < 0 then
    silent = 0
    local all = call('HVALS', KEYS[2])
    for i = 1, #all do
      local n = cmsgpack.unpack(all[i])
      local quiet = now - n[3]
      local may = (quiet > SILENT and quiet <= expiry + QUARANTINE) or now - n[5] < QUARANTINE
      if may and n[7] > 0 then silent = silent + 1 end
    end
  end
  return min(limit, silent * floor(limit / head[5]))
end

local asks = cmsgpack.unpack(ARGV[4])
local answers = {}
for i = 1, #asks do
  local ask, key = asks[i], KEYS[3 + 2 * i]
  local subject, minute, day, slots, money = ask[1], ask[2], ask[3], ask[4], ask[5]
  local answer = {false, false, false, false}
  local held_before, holds = false, false
  if minute or day or slots then
    local got = call('HMGET', key, 'm', 'd', 'n:' .. place)
    local list = unpack_or(got[1], {})
    local d = unpack_or(got[2], {0, 0, 0, 0, 0, 0})
    local n = unpack_or(got[3], {0, 0, 0, 0, {}})
    -- A key that rotation has made begins with what the one before had used: day, calls, permits of the minute, when.
    local inherited = ask[6]
    if inherited and not got[2] then
      d[1], d[2] = inherited[1], inherited[2]
      put(list, floor(inherited[4] / TICK), inherited[3])
    end
    held_before = n[2] + n[3] + n[4] > 0
    if minute then answer[1], list, n[5] = answer_minute(list, n[5], minute, now, holders) end
    if day then answer[2] = answer_day(d, n, day, now) end
    if slots then
      if slots[3] > 0 and slots[1] - d[5] + n[4] - slots[2] < slots[3] then drop_silent_slots(key, d, place, now, expiry) end
      answer[3] = answer_slots(d, n, slots)
    end
    holds = n[2] + n[3] + n[4] > 0
    call('HSET', key, 'm', pack(list), 'd', pack(d), 'n:' .. place, pack(n))
    expire_subject(key, d, now)
  end
  if money then
    local has, had
    answer[4], has, had = answer_money(KEYS[4 + 2 * i], place, host, money)
    holds, held_before = holds or has, held_before or had
  end
  -- Left in the set until the node's end where only some resources were asked for: it may hold others.
  if holds and not held_before then call('SADD', KEYS[4], subject) end
  answers[i] = answer
end
return pack({'ok', now, epoch, 0, answers, places})
`;

/** What other scripts need of it. */
export const DAY_AND_SLOTS_LUA = SHARE_OF + DAY_AND_SLOTS;
export const MONEY_LUA = MONEY;

export const EXCHANGE_SCRIPT = scriptOf(LUA_PRELUDE + SHARE_OF + MINUTE + DAY_AND_SLOTS + MONEY + EXCHANGE);
