/**
 * The Lua that the coordinator's scripts are built from: constants, exact money, time, and the grants of
 * stocks (valkey-money.ts has those of money). valkey-scripts.ts, valkey-life-scripts.ts and
 * host-directory.ts put it before their own. Redis 7 and Valkey run Lua 5.1, and every script is atomic. Here
 * is only the text: main thread. One script is one Lua function, which may have 200 locals.
 *
 * A script about a node has KEYS[1] to [4] = meta, nodes, awaited, held of its place, as far as it needs
 * them; keys of scopes follow. ARGV[1] is the place, ARGV[2] the host, ARGV[3] the packed array `head`, which
 * each script describes. If it calls `own_node`, head[1] is the name of the life that asks.
 *
 * Lua's numbers are doubles, exact to 2^53, and balances go to 9 × 10^18. An amount is therefore two numbers,
 * high × 10^9 + low, with 0 <= low < 10^9; high carries the sign. Sums of a million such amounts are exact.
 *
 * A permit _weighs_ from its grant until a minute after the last moment at which it may be used: so long it
 * counts against the limit (grant-policy.ts). A token of the minute weighs for a minute from when the server
 * hears that it was used.
 *
 * Keys of a partition, all with one hash tag, T = {namespace:partition}. A place P is the host and the slot
 * of a node, as in host:slot:
 *
 *     T:meta      hash  format: see FORMAT. epoch: a random name. until (ms): nothing is granted before.
 *                       lost (ms): when data was last lost, or 0. checked (ms): see SERVER_CHECK_MS.
 *                       fresh: 1 if the host that found the server empty remembered no epoch.
 *                       places: the version of the list of nodes, a number that grows with every change.
 *                       Of valkey-marks.ts are: run, the id of the server that wrote last. term: see the
 *                       glossary. checking: when the check under way began, or 0. born (ms): when the epoch
 *                       began. grown: 1 once it is older than a quarantine. witnessed: the version of the
 *                       list of nodes that somebody has heard of. skew: that of this server's clock, in ms.
 *                       ahead: the least by which the clock seemed ahead to those that were checked.
 *                       host:<host>: the epoch in which the host has reported what it spent.
 *                       gone:<host>: when an operator said that the host will not come back
 *     T:nodes     hash  P → the fields INCARNATION to ENDED_AFTER of the node there, see LUA_PRELUDE
 *     T:awaited   set   places that have to report, or to show their marks, before anything is granted
 *     T:held:P    set   scopes of which the node at P has a record, or holds money
 *     T:s:S       hash  of scope S: m = minute of all, s = stocks of all, p:P = minute and stocks of P (see
 *                       STOCKS_LUA); d = calls of a day as written before FORMAT 2. `write_scope` makes the
 *                       key expire
 *     T:m:S       hash  money of scope S (see valkey-money.ts): a = of all, h:H = spent by host H, n:P =
 *                       outstanding of P, u = why nobody can tell what is left. It does not expire
 *
 * A record in a hash is one packed array. Sums over all nodes are kept, so an ask costs the same with two
 * nodes and with two thousand.
 *
 * Must hold: the replies are those of `ScopeGrants` (scope-grants.ts) to the same asks, and a record of a
 * former version is still read, or FORMAT changes (test/unit/sharing/valkey-coordinator.test.ts, random
 * asks). The tests start a redis-server, and are skipped without one.
 */
import { ZONE_OFFSET_MS } from '../ledger/day.js';
import { PERIODS_AHEAD_MAX } from '../ledger/stocks.js';
import { LONG_TICKS, QUIET_PART, SHARE, SHORT_TICKS, TICK_MS, WEIGHING_TICKS } from './grant-policy.js';

/** Of the records of scopes. A server without it, or with another one, was used by a former version. */
export const FORMAT = 3;

/** The low part of an amount is below it. */
export const MONEY_BASE = 1_000_000_000n;

/**
 * How long nothing is granted after data may have been lost: all permits from before have expired by then,
 * and have no weight. One tick is added for the tick under way.
 */
export const QUARANTINE_MS = (1 + LONG_TICKS + WEIGHING_TICKS + 1) * TICK_MS;

/**
 * How often a script checks which server runs it. That no server restarts or takes over in less is an
 * assumption that nothing checks.
 */
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
local DAY, SPECIFIED_ZONE, PERIODS_AHEAD = 86400000, ${ZONE_OFFSET_MS}, ${PERIODS_AHEAD_MAX}
local call, pack, floor, ceil = redis.call, cmsgpack.pack, math.floor, math.ceil
local max, min = math.max, math.min
local place, host, head = ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3])
-- The fields of a node's record in T:nodes. 1: the name of the life. 2: number of its newest exchange; the
-- next has to be above it. 3 (ms): when it was last heard. 4: epoch in which it has reported, or ''. 5 (ms):
-- when it last came back from a silence. 6: 1 while leases of earlier lives are to be voided. 7: how many equal
-- shares there are, of which it has one, or 0 if it has none.
local INCARNATION, SEQUENCE, SEEN, EPOCH, BACK, VOIDS, EQUAL_SHARES = 1, 2, 3, 4, 5, 6, 7
-- 8 and 9: its mark, number and server. 10: version of the list of nodes as of the mark. 11: that with which
-- the place joined, or 0 if somebody has heard of the join. 12 (ms): when it joined. 13: the life before.
-- 14: pages that it has reported since it entered. valkey-marks.ts says what 8 to 14 are for. By its own
-- settings, from its first exchange on: 15 (ms): its expiry, 16 (ms): PartitionOptions.endedAfterMs.
local MARK, MARK_SERVER, MARK_VERSION, JOIN_VERSION, JOINED, FORMER, PAGES = 8, 9, 10, 11, 12, 13, 14
local EXPIRY, ENDED_AFTER = 15, 16
-- Throws unless the sum is a whole number, and so no part of it is missing, a text, or endless.
local function assert_whole(sum, what) assert(sum - sum == 0 and sum == floor(sum), what) end
local function unpack_or(text, default) if text then return cmsgpack.unpack(text) end return default end
-- Calls work, which reads and writes the rows of one scope. Returns true and its result, or false and why a
-- row cannot be read: then only that scope gets no reply. Errors of Lua, as of a damaged row, are texts.
-- Those of the server are tables, and end the script (no master, no memory), but for a key of the wrong type.
local function attempt(work, ...)
  local ok, result = pcall(work, ...)
  if ok then return true, result end
  if type(result) ~= 'table' then return false, tostring(result) end
  if not string.find(tostring(result.err), 'WRONGTYPE', 1, true) then error(result) end
  return false, result.err
end
-- The server's time, or the one given instead if that is not 0 (tests). Less the skew of this server's clock,
-- so that time goes on where that of the server before it stopped, see valkey-marks.ts.
local function now_ms(instead, meta)
  local skew = meta and tonumber(call('HGET', meta, 'skew') or 0) or 0 -- state_of sees one that is damaged
  if instead > 0 then return instead - skew end
  local t = call('TIME')
  return t[1] * 1000 + floor(t[2] / 1000) - skew
end

-- Amounts of money, each its high and its low part: ah and al, bh and bl, h and l.
local function norm(hi, lo) local carry = floor(lo / BASE) return hi + carry, lo - carry * BASE end
local function add(ah, al, bh, bl) return norm(ah + bh, al + bl) end
local function sub(ah, al, bh, bl) return norm(ah - bh, al - bl) end
local function less(ah, al, bh, bl) return ah < bh or (ah == bh and al < bl) end
local function is_positive(h, l) return h > 0 or (h == 0 and l > 0) end
-- The amount divided by SHARE, rounded up.
local function share_up(h, l)
  h, l = add(h, l, 0, SHARE - 1)
  local q = floor(h / SHARE)
  return norm(q, floor(((h - q * SHARE) * BASE + l) / SHARE))
end

local function info_of(section, word)
  return string.match(call('INFO', section), word .. ':([^\\r\\n]*)') or ''
end

-- The record of a node in T:nodes, from its text; nil if it cannot be read: then the node counts as lost.
local function node_in(text)
  local ok, node = pcall(cmsgpack.unpack, text)
  if not ok or type(node) ~= 'table' then return nil end
  for _, field in ipairs({SEQUENCE, SEEN, BACK, EQUAL_SHARES}) do
    if type(node[field]) ~= 'number' then return nil end
  end
  return node
end
-- As node_in, also with the fields that a former version left out: without them no script can go on with it.
local function node_of(nodes, who)
  local text = call('HGET', nodes, who)
  local node = text and node_in(text)
  for _, field in ipairs({MARK, MARK_VERSION, JOIN_VERSION, JOINED, PAGES}) do
    if not node or type(node[field]) ~= 'number' then return nil end
  end
  return node
end
-- The longer of what the node has said of itself and what the node that asks would say: settings may differ.
local function longer_of(node, field, own) return max(own, node and tonumber(node[field]) or 0) end
-- The node of the place, if its life is still the one that asks: head[1].
local function own_node()
  local node = node_of(KEYS[2], place)
  return node and node[INCARNATION] == head[1] and node or nil
end
local function host_of(who) return string.match(who, '^(.*):%d+$') end
local function is_gone(meta, who)
  return call('HEXISTS', meta, 'gone:' .. (host_of(who) or '')) == 1
end
`;

/**
 * Stocks are granted by state: what a node says that it has used and holds replaces what was known, and what
 * it is granted is added. A stock is named by a code (valkey-codec.ts): `f` call slots, `w` the tokens of the
 * minute; `d?` and `m?` are stocks of a day and of a month, `dc` the calls of a day.
 *
 * `s` is the record of a stock for all nodes, `n` that of one node. `n` is left out if both amounts are 0:
 *
 *          s: of d? and m?, of f      s: of w                         n
 *     [1]  period (f: 0)              0                               period
 *     [2]  used by ended lives        what weighs, the sum of [6]     used
 *     [3]  used: sum of all n[2]      0                               unused: granted, not reported as used
 *     [4]  unused: sum of all n[3]    as d?
 *     [5]  seen; of f 0               0
 *     [6]  unknown: what ended lives  use by tick
 *          had unused, counts as used
 *
 * `used` of d? and m? is of the period, that of `w` since the life began; of `f` it is 0.
 *
 * _Seen_: after a loss of data each node reports what all together had used and held when it last heard
 * (HeldStock in held-leases.ts); REPORT_SCRIPT stores the highest in s[5]. If nodes saw 100 and all that came
 * back have 70, then 30 were used by nodes that nobody knows any more. The first ask that wants something
 * counts the 30 as unknown. By then all have reported, because nobody may ask before. Nodes report 0 as seen
 * of stocks without a period (`w` and `f`).
 *
 *     p:P  [minute of the node by tick, its last grant of the minute or false: {life, number of the ask,
 *          tick, count}, its stocks n by code]
 *
 * If the period of a stock is further than PERIODS_AHEAD after the server's calendar, a node's clock was
 * wrong. What was counted in that period counts in the current one (as `GrantedStock.reply` in
 * granted-stock.ts does). `calendar` of a node is [ms by which the latest of all servers is ahead of this
 * one, offset of the settings' time zone in ms].
 *
 * Counts by tick are one flat list of tick and count, ascending: of the minute by the tick in which permits
 * expire, of `w` by that in which the server heard of the use.
 */
export const STOCKS_LUA = `
-- As shareOf in grant-policy.ts.
local function share_of(left, least, most)
  if most <= 0 or left < max(1, least) then return 0 end
  return min(most, max(least, ceil(left / SHARE)))
end
-- Returns what of the list weighs in the tick, its sum, and the sum of what has not expired.
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
local function count_at(list, tick)
  for i = 1, #list, 2 do if list[i] == tick then return list[i + 1] end end
  return 0
end
-- The node's permits (own), of those that the list of all has: that lost some if the clock was days ahead.
local function within(own, list)
  local kept = {}
  for i = 1, #own, 2 do kept[i], kept[i + 1] = own[i], min(own[i + 1], count_at(list, own[i])) end
  return kept
end
-- Adds the count at the tick; a negative count lowers what is there, to 0 at least.
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
-- When the missing count has no weight any more, oldest first; 0 if nothing is missing or it never has.
local function free_in(list, missing, now)
  if missing <= 0 then return 0 end
  for i = 1, #list, 2 do
    missing = missing - list[i + 1]
    if missing <= 0 then return (list[i] + WEIGHING + 1) * TICK - now end
  end
  return 0
end
-- Returns the minute and the stocks of all, the record p:P of the place, and whether the scope is new. A sum
-- throws if a part of it is missing or no number: so nothing is written that a damaged row was read for. d is
-- [day, used by ended lives, used, unused, slots, seen]; it may go once nobody updates from before FORMAT 2.
local function read_scope(key, place)
  local got = call('HMGET', key, 'm', 's', 'p:' .. place, 'd')
  local all = unpack_or(got[2], {})
  if got[4] and not got[2] then
    local d = cmsgpack.unpack(got[4])
    all.dc = {d[1], d[2] + d[3] + d[4], 0, 0, d[6]}
  end
  for code, s in pairs(all) do
    assert_whole(s[1] + s[2] + s[3] + s[4] + (s[5] or 0) + (code ~= 'w' and s[6] or 0), code)
  end
  local record = unpack_or(got[3], {{}, false, {}})
  for _, n in pairs(record[3]) do assert_whole(n[1] + n[2] + n[3], place) end
  return unpack_or(got[1], {}), all, record, not got[2] and not got[4]
end
-- The hash expires when nothing of it counts any more: permits and tokens of the minute weigh no longer, and
-- each period that something was counted in is over. record: p:P of the place. A node whose clock was ahead
-- may have begun a period before the server does, so the period says when it ends, within a day.
local function write_scope(key, place, list, all, record, now)
  local forMs = (LONG + WEIGHING + 2) * TICK
  for code, s in pairs(all) do
    local kind = string.sub(code, 1, 1)
    -- Something is outstanding. A call lasts a day at most, and the report of its end writes again.
    if s[4] > 0 then forMs = max(forMs, 2 * DAY) end
    local counted = code ~= 'w' and s[2] + s[3] + s[4] + (s[6] or 0) or 0
    -- A day ends 12 h after that of UTC at most, a month 1.5 days after as many of mean length.
    if counted > 0 and kind == 'd' then forMs = max(forMs, 26 / 24 * DAY, (s[1] + 1.6) * DAY - now) end
    if counted > 0 and kind == 'm' then forMs = max(forMs, 32 * DAY, (s[1] * 30.436875 + 33) * DAY - now) end
  end
  call('HSET', key, 'm', pack(list), 's', pack(all), 'p:' .. place, pack(record))
  call('PEXPIRE', key, ceil(forMs))
end
-- The records of a scope by the place of each other node. All of them are read before one is written anew, or
-- a damaged one would leave the scope half changed.
local function others_of(key, place)
  local others, rows = {}, call('HGETALL', key)
  for i = 1, #rows, 2 do
    local who = string.match(rows[i], '^p:(.*)$')
    if who and who ~= place then
      others[who] = cmsgpack.unpack(rows[i + 1])
      for _, n in pairs(others[who][3]) do assert_whole(n[1] + n[2] + n[3], who) end
    end
  end
  return others
end
-- The number of the day or month of the stock; 0 if it has no period. Calls of a day (dc) have their day in
-- UTC+8 whatever the settings say (ledger/day.ts), all other stocks in the time zone of the settings.
local function period_of(code, now, calendar)
  local kind = string.sub(code, 1, 1)
  if kind ~= 'd' and kind ~= 'm' then return 0 end
  local day = floor((now + calendar[1] + (code == 'dc' and SPECIFIED_ZONE or calendar[2])) / DAY)
  if kind == 'd' then return day end
  -- Months since 1970, by Howard Hinnant's civil_from_days. Years are counted from a first of March, so that
  -- the leap day is the last of its year.
  local of_era = (day + 719468) % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - 365 * year - floor(year / 4) + floor(year / 100)
  local month = floor((5 * of_year + 2) / 153) + 2
  return (year + floor((day + 719468) / 146097) * 400 - 1970) * 12 + month
end
-- If the period of the stock was a mistake of a clock, what was counted in it counts in the current period:
-- in s, in the stocks of the asking node (own) and in those of all others.
local function give_up_mistaken(key, place, all, own, code, current)
  local s = all[code]
  if not s or s[1] <= current + PERIODS_AHEAD then return end
  local function move(stocks)
    if stocks[code][1] == s[1] then stocks[code][1] = current else stocks[code] = nil end
  end
  if own[code] then move(own) end
  for who, record in pairs(others_of(key, place)) do
    if record[3][code] then
      move(record[3])
      call('HSET', key, 'p:' .. who, pack(record))
    end
  end
  s[1] = current
end
-- Records what the node reports of a stock and grants what it wants; returns [granted, remaining, whether
-- others hold some, period, ms until least is free]. all, own: the stocks of all and of the node by code.
-- current: the period by the calendar. An ask that only reports has 0 for least and most.
local function answer_stock(all, own, ask, now, current)
  local code, limit, period, used, unused, least, most = ask[1], ask[2], ask[3], ask[4], ask[5], ask[6], ask[7]
  local s, n, tick = all[code] or {0, 0, 0, 0, 0}, own[code], floor(now / TICK)
  if period > current + PERIODS_AHEAD then
    all[code] = s
    return {0, 0, true, max(s[1], current), 0}
  end
  if period > s[1] then s = {period, 0, 0, 0, 0} end
  if period < s[1] then used, unused = 0, 0 end
  if n and n[1] ~= s[1] then n = nil end
  if code == 'w' then
    -- Use that the node has not reported before weighs from now. A node without a record had nothing left to
    -- use and no call in flight when it last asked, so it has reported all. One with a record made s[6] then.
    if n then put(s[6], tick, max(0, used - n[2])) end
    s[6], s[2] = weigh(s[6] or {}, tick)
  else
    s[3], s[6] = s[3] + used - (n and n[2] or 0), s[6] or 0
  end
  s[4] = s[4] + unused - (n and n[3] or 0)
  -- What was seen before a loss and nobody has reported counts as used: see STOCKS_LUA. Of w seen is 0.
  if most > 0 and s[5] > 0 then
    if code == 'w' then s[2] = max(s[2], s[5] - s[3] - s[4]) else s[6] = max(s[6], s[5] - s[2] - s[3] - s[4]) end
    s[5] = 0
  end
  local left = limit - s[2] - s[3] - s[4] - (code == 'w' and 0 or s[6])
  local granted = share_of(left, least, most)
  local elsewhere = s[4] > unused
  s[4] = s[4] + granted
  all[code], own[code] = s, nil
  if unused + granted > 0 or used > 0 then own[code] = {s[1], used, unused + granted} end
  local free = 0
  if code == 'w' and granted == 0 then free = free_in(s[6], max(1, least) - left, now) end
  return {granted, max(0, left - granted), elsewhere, s[1], free}
end
-- A life has ended that has the record own[code]. What it had unused is free (f), or counts as used because
-- nobody knows whether it was: from now on (w), or until the period is over (d? and m?).
local function end_stock(all, own, code, now)
  local s, n = all[code], own[code]
  own[code] = nil
  if not s or not n or n[1] ~= s[1] then return end
  s[4] = s[4] - n[3]
  if code == 'w' then put(s[6], floor(now / TICK), n[3])
  elseif code ~= 'f' then s[2], s[3], s[6] = s[2] + n[2], s[3] - n[2], (s[6] or 0) + n[3] end
end
`;
