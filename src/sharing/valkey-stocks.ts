/**
 * The Lua that grants stocks and money, and the lists of counts by tick that permits need too.
 * valkey-exchange.ts and valkey-scripts.ts put it after LUA_PRELUDE. The scripts run at the server; this file
 * only makes their text, on the main thread.
 *
 * Must hold: the arithmetic is that of granted-stock.ts and grant-policy.ts: change both together
 * (test/unit/sharing/valkey-coordinator.test.ts, random asks). All rows of a scope are read before one is
 * written, so that a damaged row leaves the others as they are (test/unit/sharing/valkey-damage.test.ts).
 * Hosts of the former version read the records too: see valkey-lua.ts.
 */

/** What `period_of` takes from `head`. */
export interface CalendarHead {
  /** By how many ms the latest of all servers is ahead of this one. */
  readonly aheadMs: number;
  /** The offset of the settings' time zone. */
  readonly zoneMs: number;
}

/**
 * Stocks are granted by state: what a node reports as used and unused replaces its record, and the grant is
 * added. A stock is named by a code (STOCK_CODES in valkey-codec.ts): `f` call slots, `w` the tokens of the
 * minute; `d?` and `m?` are stocks of a day and of a month, `dc` the calls of a day. The hash T:s:S has
 *
 *     s     by code, the record of a stock for all nodes
 *     m     the permits of all nodes, by the tick in which they expire
 *     p:P   [PERMITS: permits of the node by that tick, LAST_GRANT: its last grant of permits, {life, number
 *           of the ask, tick, count}, or false, STOCKS: by code the records n of its stocks]
 *
 * Counts by tick are one flat list: tick, count, tick, count, and so on, in ascending order of ticks.
 *
 * In the code the variable `all` is the table s, `own` the table of the records n of one node, `list` the
 * counts m, and `record` a row p:P. A record n is left out if both amounts are 0. _Unused_ (of money:
 * outstanding) is what a node was granted and has not reported as used; what its calls hold is in it.
 *
 *     n[PERIOD]        the period; 0 of `f` and `w`
 *     n[USED]          used in the period; of `w` since the life began; of `f` 0
 *     n[UNUSED]        unused
 *
 *                      s of d? and m?, and of f              s of w
 *     s[PERIOD]        the period; 0 of `f`                  0
 *     s[OTHER_USED]    used by ended lives                   what weighs, the sum of s[BY_TICK]
 *     s[NODES_USED]    the sum of all n[USED]                0
 *     s[NODES_UNUSED]  the sum of all n[UNUSED]              the same
 *     s[SEEN]          seen; 0 of `f`                        0
 *     s[UNREPORTED]    what ended lives had unused,          (no such item)
 *                      which counts as used
 *     s[BY_TICK]       (no such item)                        use, by the tick in which the server heard of it
 *
 * _Seen_: after a loss of data each node reports what all nodes together had used and held by the last reply
 * to it (HeldStock in held-leases.ts). REPORT_SCRIPT stores the highest of these amounts in s[SEEN]. If nodes
 * saw 100 and all that came back have 70, then 30 were used by nodes that no longer have a record. The first
 * ask that wants something counts the 30 as unreported. By then all nodes have reported, because none may ask
 * before. Nodes report 0 as seen of stocks without a period (`w` and `f`).
 *
 * If the period of a stock is further than PERIODS_AHEAD after the server's calendar, a node's clock was
 * wrong. What was counted in that period counts in the current one (as `GrantedStock.reply` in
 * granted-stock.ts does).
 */
export const STOCKS_LUA = `
local PERMITS, LAST_GRANT, STOCKS = 1, 2, 3
local PERIOD, USED, UNUSED = 1, 2, 3
local OTHER_USED, NODES_USED, NODES_UNUSED, SEEN, UNREPORTED, BY_TICK = 2, 3, 4, 5, 6, 6
-- As grantedOf in grant-policy.ts: how much of left is granted to a node that wants least to most.
local function granted_of(left, least, most)
  if most <= 0 or left < max(1, least) then return 0 end
  return min(most, max(least, ceil(left / GRANT_PART)))
end
-- Returns the part of the list that weighs in the tick, its sum, and the sum of what has not expired.
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
-- The node's permits, at each tick no more than the list of all nodes has. That list may have lost some, if
-- the clock was days ahead for a while.
local function within(permits, list)
  local kept = {}
  for i = 1, #permits, 2 do
    kept[i], kept[i + 1] = permits[i], min(permits[i + 1], count_at(list, permits[i]))
  end
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
-- In how many ms so much of the list, oldest first, has no weight any more that nothing is missing. 0 if
-- nothing is missing now, or more than the list has.
local function free_in(list, missing, now)
  if missing <= 0 then return 0 end
  for i = 1, #list, 2 do
    missing = missing - list[i + 1]
    if missing <= 0 then return (list[i] + WEIGHING + 1) * TICK - now end
  end
  return 0
end
-- Returns m, s, the record p:P of the place, and whether the scope is new. A sum throws if a part of it is
-- missing or no number: so a damaged row ends the work before anything is written.
local function read_scope(key, place)
  local rows = call('HMGET', key, 'm', 's', 'p:' .. place)
  local all = unpack_or(rows[2], {})
  for code, s in pairs(all) do
    local rest = (s[SEEN] or 0) + (code ~= 'w' and s[UNREPORTED] or 0)
    assert_whole(s[PERIOD] + s[OTHER_USED] + s[NODES_USED] + s[NODES_UNUSED] + rest, code)
  end
  local record = unpack_or(rows[3], {{}, false, {}})
  for _, n in pairs(record[STOCKS]) do assert_whole(n[PERIOD] + n[USED] + n[UNUSED], place) end
  return unpack_or(rows[1], {}), all, record, not rows[2]
end
-- Writes what read_scope has returned. The hash does not expire while calls hold slots or tokens: a call may
-- last for days, and the report of its end is the next write. (What a dead node held is freed by its next
-- life, or when another node lacks it.) Else it expires when nothing of it counts any more: permits and
-- tokens of the minute weigh no longer, and each period with counts is over. A node whose clock was ahead may
-- have begun a period before the server does, so the number of a period says when it ends, within a day.
local function write_scope(key, list, all, record, now)
  local ttl, is_held = (LONG + WEIGHING + 2) * TICK, false
  for code, s in pairs(all) do
    local kind = string.sub(code, 1, 1)
    if kind == 'd' or kind == 'm' then
      local counted = s[OTHER_USED] + s[NODES_USED] + s[NODES_UNUSED] + (s[UNREPORTED] or 0)
      -- A day ends 12 h after that of UTC at most, a month 1.5 days after as many of mean length.
      if counted > 0 and kind == 'd' then ttl = max(ttl, 26 / 24 * DAY, (s[PERIOD] + 1.6) * DAY - now) end
      if counted > 0 and kind == 'm' then ttl = max(ttl, 32 * DAY, (s[PERIOD] * 30.436875 + 33) * DAY - now) end
    else
      is_held = is_held or s[NODES_UNUSED] > 0
    end
  end
  call('HSET', key, 'm', pack(list), 's', pack(all), 'p:' .. place, pack(record))
  if is_held then call('PERSIST', key) else call('PEXPIRE', key, ceil(ttl)) end
end
-- The records p:P of a scope, by the place of each other node. The caller reads all of them before it writes
-- one, or a damaged one would leave the scope half changed.
local function others_of(key)
  local others, rows = {}, call('HGETALL', key)
  for i = 1, #rows, 2 do
    local who = string.match(rows[i], '^p:(.*)$')
    if who and who ~= place then
      others[who] = cmsgpack.unpack(rows[i + 1])
      for _, n in pairs(others[who][STOCKS]) do assert_whole(n[PERIOD] + n[USED] + n[UNUSED], who) end
    end
  end
  return others
end
-- The number of the day or month of the stock; 0 if it has no period. Calls of a day (dc) have their day in
-- UTC+8 whatever the settings say (ledger/day.ts), all other stocks in the time zone of the settings.
local function period_of(code, now)
  local kind = string.sub(code, 1, 1)
  if kind ~= 'd' and kind ~= 'm' then return 0 end
  local day = floor((now + head.aheadMs + (code == 'dc' and SPECIFIED_ZONE or head.zoneMs)) / DAY)
  if kind == 'd' then return day end
  -- Months since 1970, by Howard Hinnant's civil_from_days. Years are counted from a first of March, so that
  -- the leap day is the last of its year.
  local of_era = (day + 719468) % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - 365 * year - floor(year / 4) + floor(year / 100)
  local month = floor((5 * of_year + 2) / 153) + 2
  return (year + floor((day + 719468) / 146097) * 400 - 1970) * 12 + month
end
-- If the period of the stock was a mistake of a clock, moves its counts to the current period: in all, in
-- own, and in the records of all other nodes, which it writes.
local function give_up_mistaken(key, all, own, code, current)
  local s = all[code]
  if not s or s[PERIOD] <= current + PERIODS_AHEAD then return end
  local function move(stocks)
    if stocks[code][PERIOD] == s[PERIOD] then stocks[code][PERIOD] = current else stocks[code] = nil end
  end
  if own[code] then move(own) end
  for who, record in pairs(others_of(key)) do
    if record[STOCKS][code] then
      move(record[STOCKS])
      call('HSET', key, 'p:' .. who, pack(record))
    end
  end
  s[PERIOD] = current
end
-- Records what the node reports of a stock and grants what it wants: ask is a RawStockAsk. Returns a
-- RawStockGrant. Changes all and own, which the caller writes. current: the period by the calendar. (These
-- two and those of money are arrays: with names an exchange takes the server an eighth longer.)
local function grant_stock(all, own, ask, now, current)
  local code, limit, period, used, unused, least, most = unpack(ask)
  local s, n, tick = all[code] or {0, 0, 0, 0, 0}, own[code], floor(now / TICK)
  if period > current + PERIODS_AHEAD then
    all[code] = s
    return {0, 0, true, max(s[PERIOD], current), 0}
  end
  if period > s[PERIOD] then s = {period, 0, 0, 0, 0} end
  if period < s[PERIOD] then used, unused = 0, 0 end
  if n and n[PERIOD] ~= s[PERIOD] then n = nil end
  if code == 'w' then
    -- Use that the node has not reported before weighs from now. A node without a record has no such use: it
    -- had nothing unused and no call in flight when it last asked. One with a record made s[BY_TICK] then.
    if n then put(s[BY_TICK], tick, max(0, used - n[USED])) end
    s[BY_TICK], s[OTHER_USED] = weigh(s[BY_TICK] or {}, tick)
  else
    s[NODES_USED], s[UNREPORTED] = s[NODES_USED] + used - (n and n[USED] or 0), s[UNREPORTED] or 0
  end
  s[NODES_UNUSED] = s[NODES_UNUSED] + unused - (n and n[UNUSED] or 0)
  local counted = s[OTHER_USED] + s[NODES_USED] + s[NODES_UNUSED]
  -- What was seen before a loss and nobody has reported counts as used. Of w and f nothing is seen.
  if most > 0 and s[SEEN] > 0 then
    s[UNREPORTED] = max(s[UNREPORTED], s[SEEN] - counted)
    s[SEEN] = 0
  end
  local left = limit - counted - (code == 'w' and 0 or s[UNREPORTED])
  local granted = granted_of(left, least, most)
  local held_by_others = s[NODES_UNUSED] > unused
  s[NODES_UNUSED] = s[NODES_UNUSED] + granted
  all[code], own[code] = s, nil
  if unused + granted > 0 or used > 0 then own[code] = {s[PERIOD], used, unused + granted} end
  local free = 0
  if code == 'w' and granted == 0 then free = free_in(s[BY_TICK], max(1, least) - left, now) end
  return {granted, max(0, left - granted), held_by_others, s[PERIOD], free}
end
-- Called when the life of own[code] has ended. What it had unused is free (f), or counts as used, because it
-- may have been: for a minute from now (w), or until the period is over (d? and m?).
local function end_stock(all, own, code, now)
  local s, n = all[code], own[code]
  own[code] = nil
  if not s or not n or n[PERIOD] ~= s[PERIOD] then return end
  s[NODES_UNUSED] = s[NODES_UNUSED] - n[UNUSED]
  if code == 'w' then
    put(s[BY_TICK], floor(now / TICK), n[UNUSED])
  elseif code ~= 'f' then
    s[OTHER_USED], s[NODES_USED] = s[OTHER_USED] + n[USED], s[NODES_USED] - n[USED]
    s[UNREPORTED] = (s[UNREPORTED] or 0) + n[UNUSED]
  end
end
`;

/**
 * The fields of the hash T:m:S, the money of one scope. An amount takes two items, its high and its low part
 * (valkey-lua.ts):
 *
 *     a    of all nodes: [1, 2] CREDITED, [3] its VERSION, [4, 5] SPENT, [6, 7] OUTSTANDING
 *     h:H  [1, 2] spent by host H, [3] the version of that amount
 *     n:P  [1, 2] outstanding of the node at P
 *     u    why it is not known what remains; absent if it is known
 *
 * Of what hosts report as credited, and of what a host reports as spent, the newest version counts, also if
 * its amount is smaller. Version -1, of a hash without the field, is older than any.
 */
export const MONEY_LUA = `
local CREDITED, VERSION, SPENT, OUTSTANDING = 1, 3, 4, 6
-- Adds to, or subtracts from (op: add or sub), the amount that begins at that item of a.
local function change(a, item, op, h, l) a[item], a[item + 1] = op(a[item], a[item + 1], h, l) end
-- Returns a, h: of the host, n: of the place, and whether the last one is stored. Throws if u is there.
local function read_money(key, place, host)
  local rows = call('HMGET', key, 'a', 'h:' .. host, 'n:' .. place, 'u')
  assert(not rows[4], rows[4])
  local total, by_host = unpack_or(rows[1], {0, 0, -1, 0, 0, 0, 0}), unpack_or(rows[2], {0, 0, -1})
  local own = unpack_or(rows[3], {0, 0})
  assert_whole(total[1] + total[2] + total[3] + total[4] + total[5] + total[6] + total[7], 'a')
  assert_whole(by_host[1] + by_host[2] + by_host[3] + own[1] + own[2], place)
  return total, by_host, own, rows[3] and true or false
end
-- Records what the ask reports and grants what it wants: ask is a RawMoneyAsk. Returns a RawMoneyGrant, then
-- whether the node now holds money, and whether it did before.
local function grant_money(key, ask)
  local total, by_host, own, had = read_money(key, place, host)
  local out_high, out_low, least_high, least_low, most_high, most_low, spent, credited = unpack(ask)
  local is_newer = spent and spent[3] > by_host[3]
  if credited and credited[3] > total[VERSION] then
    total[CREDITED], total[CREDITED + 1], total[VERSION] = credited[1], credited[2], credited[3]
  end
  if is_newer then
    change(total, SPENT, sub, by_host[1], by_host[2])
    change(total, SPENT, add, spent[1], spent[2])
  end
  -- What the node reports replaces what it had outstanding.
  change(total, OUTSTANDING, sub, own[1], own[2])
  local held_by_others = is_positive(total[OUTSTANDING], total[OUTSTANDING + 1])
  change(total, OUTSTANDING, add, out_high, out_low)
  -- What remains. Below 0 while nodes report after a loss of data, because reports name no credit.
  local left_high, left_low = sub(total[CREDITED], total[CREDITED + 1], total[SPENT], total[SPENT + 1])
  left_high, left_low = sub(left_high, left_low, total[OUTSTANDING], total[OUTSTANDING + 1])
  -- As grantedStockOf in grant-policy.ts.
  local high, low = 0, 0
  if is_positive(most_high, most_low) and is_positive(left_high, left_low)
    and not less(left_high, left_low, least_high, least_low) then
    high, low = part_up(left_high, left_low)
    if less(high, low, least_high, least_low) then high, low = least_high, least_low end
    if less(most_high, most_low, high, low) then high, low = most_high, most_low end
  end
  change(total, OUTSTANDING, add, high, low)
  left_high, left_low = sub(left_high, left_low, high, low)
  if left_high < 0 then left_high, left_low = 0, 0 end
  local own_high, own_low = add(out_high, out_low, high, low)
  local holds = is_positive(own_high, own_low)
  if is_newer then call('HSET', key, 'h:' .. host, pack(spent)) end
  call('HSET', key, 'a', pack(total))
  if holds then call('HSET', key, 'n:' .. place, pack({own_high, own_low}))
  elseif had then call('HDEL', key, 'n:' .. place) end
  return {high, low, left_high, left_low, held_by_others}, holds, had
end
`;
