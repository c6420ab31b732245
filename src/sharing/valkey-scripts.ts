/**
 * The Lua scripts that read and write leases at the server. valkey-partition.ts runs the exchange, the report
 * and the view, valkey-server.ts the script that frees leases. The exchange does to the keys of a partition
 * what `ScopeGrants` (scope-grants.ts) does to its objects: change both together. valkey-lua.ts says what
 * KEYS and ARGV are. A `time` in ARGV is 0 for the server's own; only tests set another. The scripts run at
 * the server; this file makes their text, on the main thread.
 *
 * Must hold: the scripts reply as `ScopeGrants` does (test/unit/sharing/valkey-coordinator.test.ts compares
 * them over random rounds). A row that cannot be read costs its own scope alone, in each of the scripts
 * (valkey-damage.test.ts). Money is freed only of nodes that can charge nothing any more
 * (valkey-killed-process.test.ts).
 */
import { scriptOf } from './valkey-client.js';
import { LUA_PRELUDE } from './valkey-lua.js';
import { MARKS_LUA } from './valkey-marks.js';
import { MONEY_LUA, STOCKS_LUA } from './valkey-stocks.js';

/**
 * Replies to an ask for permits, as `MinuteBuckets.reply` in scope-grants.ts. `list` is m of the scope, and
 * `record` the row p:P of the node that asks: see STOCKS_LUA. `held_back` returns how many of a limit's
 * permits are held back for silent nodes. Returns the reply and the new m; the caller writes m and p:P.
 */
const MINUTE = `
local function grant_minute(list, record, ask, now, held_back, incarnation)
  local limit, least, most, for_ms, returned, is_fallback, order, used =
    ask[1], ask[2], ask[3], ask[4], ask[5], ask[6], ask[7], ask[8]
  local permits, last_grant = within(record[PERMITS], list), record[LAST_GRANT]
  local tick = floor(now / TICK)
  -- The node has not heard of its last grant, so it has not used it: only that grant is taken back. What this
  -- ask returns and names as used was recorded with the last ask, which named the same.
  if order and last_grant and last_grant[1] == incarnation and last_grant[2] > order[2] then
    returned, used = {last_grant[3], last_grant[4]}, {}
  end
  local function take_back(from, count, to)
    -- Never more than the node has at that tick: the rest has no weight any more.
    count = min(count, count_at(permits, from))
    for _, counts in ipairs({list, permits}) do
      put(counts, from, -count)
      if to then put(counts, to, count) end
    end
  end
  for i = 1, #returned, 2 do take_back(returned[i], returned[i + 1]) end
  for i = 1, #used, 2 do
    -- A used permit weighs as if it were granted now with the shortest validity, unless it expires sooner.
    if used[i] > tick + SHORT then take_back(used[i], used[i + 1], tick + SHORT) end
  end
  limit = limit - held_back(limit)
  local new_list, weighing, unexpired = weigh(list, tick)
  local new_permits, _, own_unexpired = weigh(permits, tick)
  local granted = granted_of(limit - weighing, least, most)
  weighing = weighing + granted
  -- The last tick in which the grant may be used, as expiryTickOf in grant-policy.ts.
  local last = tick + SHORT
  local is_long = is_fallback or weighing * QUIET <= limit
  if is_long then last = tick + min(LONG, max(SHORT, ceil(for_ms / TICK))) end
  put(new_list, last, granted)
  put(new_permits, last, granted)
  local reply = {granted, max(0, limit - weighing), unexpired > own_unexpired, last, (last + 1) * TICK - now,
    free_in(new_list, weighing - limit + 1, now)}
  record[PERMITS] = new_permits
  if order then record[LAST_GRANT] = {incarnation, order[1], last, granted} end
  return reply, new_list
end
`;

/** Frees what nodes held that were silent for so long that they have no call any more (`endedAfterMs`). */
const SILENT_NODES = `
-- Removes awaited places that have no call any more, because they have been silent since the loss, silent_ms
-- ago, and whose host has reported since what it has spent: nothing more can be spent of what they held.
local function drop_silent_awaited(meta, awaited, epoch, silent_ms, ended_after)
  for _, who in ipairs(call('SMEMBERS', awaited)) do
    local of_host, node = host_of(who), node_of(KEYS[2], who)
    local has_ended = silent_ms > longer_of(node, ENDED_AFTER, ended_after)
    if has_ended and of_host and call('HGET', meta, 'host:' .. of_host) == epoch then
      call('SREM', awaited, who)
    end
  end
end
-- Ends the call slots and the tokens of the minute of other nodes that were silent for so long.
local function drop_silent(key, all, place, now, ended_after)
  for who, record in pairs(others_of(key, place)) do
    local known = node_of(KEYS[2], who)
    local stocks = record[STOCKS]
    local holds = stocks.f or stocks.w
    if holds and (not known or now - known[HEARD_AT] > longer_of(known, ENDED_AFTER, ended_after)) then
      end_stock(all, stocks, 'f', now)
      end_stock(all, stocks, 'w', now)
      call('HSET', key, 'p:' .. who, pack(record))
    end
  end
end
-- Frees the money of other nodes of this host that were silent for so long: a process was killed, and no
-- other has taken its slot. All that they charged is in the host's store, whose total the ask has just
-- reported. Returns whether there were such nodes. What nodes of other hosts have charged is not known here,
-- so their money stays.
local function drop_silent_money(key, place, host, now, ended_after)
  local total, rows, silent = read_money(key, place, host), call('HGETALL', key), {}
  for i = 1, #rows, 2 do
    local who = string.match(rows[i], '^n:(.*)$')
    local known = who and who ~= place and host_of(who) == host and node_of(KEYS[2], who)
    if known and now - known[HEARD_AT] > longer_of(known, ENDED_AFTER, ended_after) then
      local own = cmsgpack.unpack(rows[i + 1])
      assert_whole(own[1] + own[2], who)
      change(total, OUTSTANDING, sub, own[1], own[2])
      silent[#silent + 1] = rows[i]
    end
  end
  if #silent == 0 then return false end
  call('HDEL', key, unpack(silent))
  call('HSET', key, 'a', pack(total))
  return true
end
`;

/**
 * An exchange: the asks of a node to one partition.
 *
 *     KEYS     meta, nodes, awaited, held; then two of each ask's scope
 *     ARGV[3]  [incarnation, sequence, sent at (ms, by the server's clock) or 0, time, equal shares or 0,
 *              expiry ms, heard [number, server], promised [term, server], calendar, ms after which
 *              this node has no call if it is silent]
 *     ARGV[4]  asks, each [scope, minute, stocks, money, inherited], false for what is left out;
 *              valkey-codec.ts has their fields
 *     reply    [status, now ms, epoch, ms to wait, replies, version of the list of nodes]; in place of the
 *              reply to an ask, why a row of its scope cannot be read: nothing of that scope is granted
 *
 *     status ok          carried out
 *            term        promise this term first; in place of replies comes [term, server]
 *            unknown     this life is not known: enter
 *            old         the sequence is not above that of the last exchange
 *            aged        the exchange came too late, or the server's clock was set forward
 *            report      enter again, and report all that is held
 *            quarantine  wait; in place of replies come some of the places that have to report
 *            check       wait; in place of replies come some of the places that have to show their mark
 *            new         wait until another node has heard of this one
 */
const EXCHANGE = `
local incarnation, sequence, sent_at, time, equal_shares = head[1], head[2], head[3], head[4], head[5]
local expiry, heard, promised, calendar, ended_after = head[6], head[7], head[8], head[9], head[10]
local now = now_ms(time, KEYS[1])
local s = state_of(now)
-- The node's record is not written before all of these checks: an exchange that fails one is no sign of life.
if not s then return pack({'unknown', now, '', 0}) end
local node = own_node()
if not node then return pack({'unknown', now, s.epoch, 0}) end
if sequence <= node[SEQUENCE] then return pack({'old', now, s.epoch, 0}) end
if not has_promised(s, now, promised) then return pack({'term', now, s.epoch, 0, {s.term, s.run}}) end
if sent_at > 0 and now - sent_at > AGE then return pack({'aged', now, s.epoch, 0}) end
if equal_shares > 0 and now - node[HEARD_AT] > SILENT then node[BACK] = now end
node[SEQUENCE], node[HEARD_AT], node[EXPIRY], node[ENDED_AFTER] = sequence, now, expiry, ended_after
local function refuse(status, wait_ms, details)
  call('HSET', KEYS[2], place, pack(node))
  return pack({status, now, s.epoch, wait_ms, details or {}})
end
if node[EPOCH] == s.epoch and not has_heard(node, heard) then lose(s, now, now + QUARANTINE) end
if node[EPOCH] ~= s.epoch then return refuse('report', max(0, s.till - now)) end
witness(s, node, heard)
if s.checking > 0 and not is_checked(s, now, place, sent_at) then
  if s.checking == 0 then return refuse('report', max(0, s.till - now)) end
  return refuse('check', max(TICK, s.checking + QUARANTINE - now), call('SRANDMEMBER', KEYS[3], 3))
end
if call('SCARD', KEYS[3]) > 0 then
  local silent_ms = now - s.lost
  if silent_ms > ended_after then drop_silent_awaited(KEYS[1], KEYS[3], s.epoch, silent_ms, ended_after) end
  return refuse('quarantine', max(TICK, s.till - now), call('SRANDMEMBER', KEYS[3], 3))
end
if now < s.till then return refuse('quarantine', s.till - now) end
if not is_witnessed(s, node, now) then return refuse('new', node[JOINED] + QUARANTINE - now) end
node[MARK], node[MARK_SERVER], node[MARK_VERSION] = sequence, s.run, s.places
call('HSET', KEYS[2], place, pack(node))

-- How many permits of the limit are held back: the equal shares of silent nodes, until QUARANTINE after they
-- are back or expire. Settings of hosts may differ, so each share is the one that its own node uses.
local silent -- how many such nodes there are, by their number of shares; counted for the first ask
local function held_back(limit)
  if not silent then
    silent = {}
    -- Without a share anywhere the list of nodes, which may be long, is not read.
    local has_shares = equal_shares > 0 or call('HGET', KEYS[1], 'shares')
    local all = has_shares and call('HVALS', KEYS[2]) or {}
    for i = 1, #all do
      local n = node_in(all[i])
      local silent_ms = n and now - n[HEARD_AT]
      -- A node whose record is damaged may use its share, too: one as this node has.
      local shares = n and n[EQUAL_SHARES] or equal_shares
      local may_use = not n or now - n[BACK] < QUARANTINE
        or (silent_ms > SILENT and silent_ms <= longer_of(n, EXPIRY, expiry) + QUARANTINE)
      if may_use and shares > 0 then silent[shares] = (silent[shares] or 0) + 1 end
    end
  end
  local count = 0
  for shares, nodes in pairs(silent) do count = count + nodes * floor(limit / shares) end
  return min(limit, count)
end

-- Whether anything is in a row p:P. Permits count too: those of an ended life are not the next life's.
local function has_content(record)
  return (next(record[PERMITS]) or record[LAST_GRANT] or next(record[STOCKS])) ~= nil
end
-- Carries out one ask; returns the reply. key, money_key: T:s:S and T:m:S of the ask's scope.
local function carry_out(ask, key, money_key)
  local scope, minute, stocks, money, inherited = ask[1], ask[2], ask[3], ask[4], ask[5]
  local reply = {false, false, false}
  local held_before, holds = false, false
  -- Throws if a row of the money is damaged, before anything of the scope is written.
  if money then read_money(money_key, place, host) end
  if minute or stocks then
    local list, all, record, is_new = read_scope(key, place)
    local own = record[STOCKS]
    -- A rotated key begins with what the key before it had used: [permits of the minute, when, stocks as
    -- {code, period, used}].
    if inherited and is_new then
      put(list, floor(inherited[2] / TICK), inherited[1])
      for _, used in ipairs(inherited[3]) do all[used[1]] = {used[2], used[3], 0, 0, 0} end
    end
    held_before = has_content(record)
    if minute then reply[1], list = grant_minute(list, record, minute, now, held_back, incarnation) end
    if stocks then
      reply[2] = {}
      for j = 1, #stocks do
        local stock = stocks[j]
        local current = period_of(stock[1], now, calendar)
        give_up_mistaken(key, place, all, own, stock[1], current)
        local stock_reply = grant_stock(all, own, stock, now, current)
        -- Too few slots or tokens are left. What silent nodes hold of these may be free by now.
        if stock_reply[1] == 0 and stock[7] > 0 and (stock[1] == 'f' or stock[1] == 'w') then
          drop_silent(key, all, place, now, ended_after)
          stock_reply = grant_stock(all, own, stock, now, current)
        end
        reply[2][j] = stock_reply
      end
    end
    holds = has_content(record)
    write_scope(key, place, list, all, record, now)
  end
  local is_short = false
  if money then
    local holds_money, held_money
    reply[3], holds_money, held_money = grant_money(money_key, place, host, money)
    -- money[5] and [6]: the most that the ask wants.
    is_short = reply[3][1] == 0 and reply[3][2] == 0 and is_positive(money[5], money[6])
    holds, held_before = holds or holds_money, held_before or held_money
  end
  -- The scope stays in the set until the node's end, because an ask may name only some of the resources. It
  -- is there before anything below throws, or the end of the node would not free what was granted above.
  if holds and not held_before then call('SADD', KEYS[4], scope) end
  if is_short and drop_silent_money(money_key, place, host, now, ended_after) then
    reply[3], holds = grant_money(money_key, place, host, money)
    if holds then call('SADD', KEYS[4], scope) end
  end
  return reply
end

local asks = cmsgpack.unpack(ARGV[4])
local replies = {}
for i = 1, #asks do
  local _, reply_or_damage = attempt(carry_out, asks[i], KEYS[3 + 2 * i], KEYS[4 + 2 * i])
  replies[i] = reply_or_damage
end
return pack({'ok', now, s.epoch, 0, replies, s.places})
`;

export const EXCHANGE_SCRIPT = scriptOf(
  LUA_PRELUDE + MARKS_LUA + STOCKS_LUA + MINUTE + MONEY_LUA + SILENT_NODES + EXCHANGE,
);

/** How many scopes a page has. For some 10 ms the server does nothing else. */
export const PAGE_SCOPES = 500;

/**
 * Frees what an ended life of the place held.
 *
 *     KEYS     meta, nodes, awaited, held; then two of each scope
 *     ARGV[3]  [incarnation, time]
 *     ARGV[4]  of each scope [scope, spent by the host: false if nothing, true if the host's record is
 *              damaged]
 *     reply    the next page of scopes; false if another life has come. What is damaged stays as it is
 */
export const FREE_SCRIPT = scriptOf(`${LUA_PRELUDE}${STOCKS_LUA}${MONEY_LUA}
if not own_node() then return pack(false) end
local now = now_ms(head[2], KEYS[1])
local function free_counts(key)
  local list, all, record, is_new = read_scope(key, place)
  if is_new then return end
  for code in pairs(all) do end_stock(all, record[STOCKS], code, now) end
  write_scope(key, place, list, all, record, now)
  call('HDEL', key, 'p:' .. place)
end
local function free_money(key, spent)
  -- true: the host's record is damaged. The money stays outstanding, as nobody knows what was charged of it.
  if spent ~= true and call('EXISTS', key) == 1 then
    grant_money(key, place, host, {0, 0, 0, 0, 0, 0, spent, false})
  end
end
for i, row in ipairs(cmsgpack.unpack(ARGV[4])) do
  attempt(free_counts, KEYS[3 + 2 * i])
  attempt(free_money, KEYS[4 + 2 * i], row[2])
  call('SREM', KEYS[4], row[1])
end
return pack(call('SRANDMEMBER', KEYS[4], ${PAGE_SCOPES}))
`);

/**
 * Reports what a node holds, or its host has spent, in a new epoch.
 *
 *     KEYS     meta, nodes, awaited, held; then two of each scope
 *     ARGV[3]  [incarnation, time, calendar]
 *     ARGV[4]  of each scope [scope, stocks, money or false, spent: false if nothing, true if the host's
 *              record is damaged, and then no node is granted the scope's money];
 *              a stock is [code, period, used, unused, total seen]
 *     reply    true; false if another life has come. What is damaged stays as it is
 */
export const REPORT_SCRIPT = scriptOf(`${LUA_PRELUDE}${STOCKS_LUA}${MONEY_LUA}
local known = own_node()
if not known then return pack(false) end
local now = now_ms(head[2], KEYS[1])
local function report_counts(key, stocks)
  if #stocks == 0 then return end
  local list, all, record = read_scope(key, place)
  local own = record[STOCKS]
  for _, stock in ipairs(stocks) do
    local code, period = stock[1], stock[2]
    local current = period_of(code, now, head[3])
    if period > current + PERIODS_AHEAD then period = current end
    give_up_mistaken(key, place, all, own, code, current)
    grant_stock(all, own, {code, 0, period, stock[3], stock[4], 0, 0}, now, current)
    if period == all[code][PERIOD] then all[code][SEEN] = max(all[code][SEEN], stock[5]) end
  end
  write_scope(key, place, list, all, record, now)
end
local function report_money(key, money, spent)
  if not money and not spent then return end
  if spent == true then
    call('HSET', key, 'u', 'host ' .. host .. ' cannot read what it has spent')
    return
  end
  local held = money or unpack_or(call('HGET', key, 'n:' .. place), {0, 0})
  grant_money(key, place, host, {held[1], held[2], 0, 0, 0, 0, spent, false})
end
for i, row in ipairs(cmsgpack.unpack(ARGV[4])) do
  local stocks, money = row[2], row[3]
  attempt(report_counts, KEYS[3 + 2 * i], stocks)
  attempt(report_money, KEYS[4 + 2 * i], money, row[4])
  if #stocks > 0 or money then call('SADD', KEYS[4], row[1]) end
end
known[PAGES] = known[PAGES] + 1
call('HSET', KEYS[2], place, pack(known))
return pack(true)
`);

/**
 * Reads scopes for an operator.
 *
 *     KEYS     meta, nodes, awaited, held; then two of each scope
 *     ARGV[3]  [time, slots]
 *     reply    of each scope [weighing, unexpired, processes, stocks as {code, period, used, unused},
 *              outstanding high, low, spent high, low, spent by the host alone high, low]; of each process
 *              that has asked [slot, weighing, unexpired, number of the last ask, stocks as {code, used}].
 *              If a row of a scope cannot be read, why, in place of the scope's reply
 */
export const VIEW_SCRIPT = scriptOf(`${LUA_PRELUDE}${STOCKS_LUA}${MONEY_LUA}
local tick = floor(now_ms(head[1], KEYS[1]) / TICK)
local function view_of(key, money_key)
  -- No node has the place '', so the results about a place are left out.
  local list, all = read_scope(key, '')
  local total, by_host = read_money(money_key, '', host)
  local _, weighing, unexpired = weigh(list, tick)
  local stocks, processes = {}, {}
  for code, s in pairs(all) do
    local used, unused = s[OTHER_USED] + s[NODES_USED], s[NODES_UNUSED]
    if code == 'w' then _, used = weigh(s[BY_TICK], tick) else unused = unused + (s[UNREPORTED] or 0) end
    stocks[#stocks + 1] = {code, s[PERIOD], used, unused}
  end
  for _, slot in ipairs(head[2]) do
    local text = call('HGET', key, 'p:' .. host .. ':' .. slot)
    if text then
      local record, used = cmsgpack.unpack(text), {}
      local _, own_weighing, own_unexpired = weigh(within(record[PERMITS], list), tick)
      for code, n in pairs(record[STOCKS]) do
        if all[code] and n[PERIOD] == all[code][PERIOD] then used[#used + 1] = {code, n[USED]} end
      end
      local last_grant = record[LAST_GRANT]
      local number = last_grant and last_grant[2] or 0
      if own_weighing > 0 or number > 0 or #used > 0 then
        processes[#processes + 1] = {slot, own_weighing, own_unexpired, number, used}
      end
    end
  end
  return {weighing, unexpired, processes, stocks, total[OUTSTANDING], total[OUTSTANDING + 1], total[SPENT],
    total[SPENT + 1], by_host[1], by_host[2]}
end
local views = {}
for i = 5, #KEYS, 2 do
  local _, view = attempt(view_of, KEYS[i], KEYS[i + 1])
  views[#views + 1] = view
end
return pack(views)
`);
