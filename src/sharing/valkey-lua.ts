/**
 * What the Lua scripts of the coordinator have in common: constants, exact money, time, and the grants of
 * day, slots and money. Redis 7 and Valkey run Lua 5.1, and every script is atomic. valkey-scripts.ts builds
 * the scripts from it. Main thread.
 *
 * Lua's numbers are doubles, exact to 2^53, and balances go to 9 × 10^18. An amount is therefore two numbers,
 * high × 10^9 + low, with 0 <= low < 10^9; high carries the sign. Sums of a million such amounts are exact.
 *
 * Keys of a partition, all with one hash tag, T = {namespace:partition}. A place P is the host and the slot
 * of a node:
 *
 *     T:meta      hash  epoch, checked, until and lost (ms), fresh; places = version of the list of nodes;
 *                       run, term, checking, grown and witnessed: see valkey-marks.ts,
 *                       host:<host> = epoch in which the host reported,
 *                       gone:<host> = when an operator said that the host will not come back
 *     T:nodes     hash  P → [incarnation, sequence, seen (ms), epoch in which it reported,
 *                       back (ms) = when it last came back from silence,
 *                       whether leases of an earlier life are to be voided,
 *                       equal shares of which it has one or 0,
 *                       and from the 8th on what valkey-marks.ts says]
 *     T:awaited   set   places that have to report, or to show their marks, before anything is granted
 *     T:held:P    set   scopes of which the node at P holds day, slots or money
 *     T:s:S       hash  of scope S: m = minute of all, d = day and slots of all, n:P = those of P.
 *                       It expires when nothing of it weighs
 *     T:m:S       hash  money of scope S: a = credited, spent, outstanding of all, h:H = spent by host H,
 *                       n:P = outstanding of P. It does not expire
 *
 * A record in a hash is one packed array. Sums over all nodes are kept, so an ask costs the same with two
 * nodes and with two thousand.
 */
import { LONG_TICKS, QUIET_PART, SHARE, SHORT_TICKS, TICK_MS, WEIGHING_TICKS } from './grant-policy.js';

/** The low part of an amount is below it. */
export const MONEY_BASE = 1_000_000_000n;

/**
 * How long nothing is granted after data may have been lost: all permits from before have expired by then,
 * and have no weight. One tick is added for the tick under way.
 */
export const QUARANTINE_MS = (1 + LONG_TICKS + WEIGHING_TICKS + 1) * TICK_MS;

/** How often a script checks which server runs it: no server restarts or takes over within 20 ms. */
export const SERVER_CHECK_MS = 20;

/**
 * An exchange that arrives so long after it was sent is not carried out: its node has given it up by then,
 * and may count its silence from before. If the node finds that it was not that late, the server's clock was
 * set forward.
 */
export const EXCHANGE_AGE_MS_MAX = 1_500;

/** The equal share of a node that was silent for longer is held back: the node may soon be using it. */
export const SILENT_MS = 20_000;

export const LUA_PRELUDE = `
local TICK, WEIGHING, SHORT, LONG = ${TICK_MS}, ${WEIGHING_TICKS}, ${SHORT_TICKS}, ${LONG_TICKS}
local QUIET, SHARE, BASE = ${QUIET_PART}, ${SHARE}, ${MONEY_BASE}
local QUARANTINE, SILENT, CHECK, AGE = ${QUARANTINE_MS}, ${SILENT_MS}, ${SERVER_CHECK_MS}, ${EXCHANGE_AGE_MS_MAX}
local DAY, ZONE = 86400000, 28800000
local call, pack, floor, ceil = redis.call, cmsgpack.pack, math.floor, math.ceil
local max, min = math.max, math.min
local function unpack_or(text, default) if text then return cmsgpack.unpack(text) end return default end
-- Goes on where the time of the server before this one stopped, see valkey-marks.ts.
local function now_ms(instead, meta)
  local skew = meta and tonumber(call('HGET', meta, 'skew') or 0) or 0
  if instead > 0 then return instead - skew end
  local t = call('TIME')
  return t[1] * 1000 + floor(t[2] / 1000) - skew
end

local function norm(hi, lo) local carry = floor(lo / BASE) return hi + carry, lo - carry * BASE end
local function add(ah, al, bh, bl) return norm(ah + bh, al + bl) end
local function sub(ah, al, bh, bl) return norm(ah - bh, al - bl) end
local function less(ah, al, bh, bl) return ah < bh or (ah == bh and al < bl) end
local function is_positive(h, l) return h > 0 or (h == 0 and l > 0) end
local function quarter_up(h, l)
  h, l = add(h, l, 0, SHARE - 1)
  local q = floor(h / SHARE)
  return norm(q, floor(((h - q * SHARE) * BASE + l) / SHARE))
end

local function info_of(section, word)
  return string.match(call('INFO', section), word .. ':([^\\r\\n]*)') or ''
end

local function node_of(nodes, place)
  local text = call('HGET', nodes, place)
  return text and cmsgpack.unpack(text)
end
local function host_of(place) return string.match(place, '^(.*):%d+$') end
local function is_gone(meta, place)
  return call('HEXISTS', meta, 'gone:' .. (host_of(place) or '')) == 1
end
-- Drops awaited places whose host has told what it spent. Their silence was so long that their calls are cut.
local function drop_silent_awaited(meta, awaited, epoch)
  for _, place in ipairs(call('SMEMBERS', awaited)) do
    local host = host_of(place)
    if host and call('HGET', meta, 'host:' .. host) == epoch then call('SREM', awaited, place) end
  end
end
local function expire_subject(key, d, now)
  local forMs = (LONG + WEIGHING + 2) * TICK
  if d[2] + d[3] + d[4] > 0 then forMs = max(forMs, (d[1] + 1) * DAY - ZONE - now + DAY / 24) end
  -- A call lasts no longer than a day, and its end is reported.
  if d[5] > 0 then forMs = max(forMs, 2 * DAY) end
  call('PEXPIRE', key, ceil(forMs))
end
`;

const SHARE_OF = `
local function share_of(left, least, most)
  if most <= 0 or left < max(1, least) then return 0 end
  return min(most, max(least, ceil(left / SHARE)))
end
`;

/**
 * Grants by state: what a node says that it holds replaces what was known, and what it is granted is added.
 *
 *     d, of all       [day, used by ended lives, used, unused, slots, total that was seen before a loss]
 *     n, of the node  [day, used, unused, slots, its buckets of the minute, its last grant of the minute:
 *                     {life, number of the ask, tick, count}]
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
  -- What the others saw and do not have themselves was used by nodes that nobody knows any more.
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
-- Frees the slots of nodes that were silent for too long: such a node has cut its calls.
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

/**
 * Grants of money. `a` is of all nodes [credited, its version, spent, outstanding], each amount two numbers.
 * Every ask says what its host's copy of the registry has as credited; the newest copy counts.
 */
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
