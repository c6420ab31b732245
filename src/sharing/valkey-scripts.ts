/**
 * The Lua scripts that free leases, report them after a loss of data, and show them. valkey-partition.ts runs
 * the report and the view, valkey-server.ts the script that frees. valkey-lua.ts has the names that they
 * begin with.
 *
 * Must hold: a row that cannot be read costs its own scope alone (test/unit/sharing/valkey-damage.test.ts).
 */
import type { HeldStock } from './held-leases.js';
import type { RawAmount, RawView, SpentRow } from './valkey-codec.js';
import { type LifeHead, nodeScript } from './valkey-lua.js';
import { type CalendarHead, MONEY_LUA, STOCKS_LUA } from './valkey-stocks.js';

/** How many scopes a page has. For some 10 ms the server does nothing else. */
export const PAGE_SCOPES = 500;

interface FreedRow {
  readonly scope: string;
  readonly spent: SpentRow;
}

/**
 * Frees what an ended life of the place held of the scopes of `rows`. Replies with the next page of scopes,
 * or false if another life has come. What is damaged stays as it is.
 */
export const FREE_SCRIPT = nodeScript<LifeHead, FreedRow, readonly string[] | false>(
  STOCKS_LUA,
  MONEY_LUA,
  `
if not own_node() then return pack(false) end
local now = now_ms()
local function free_counts(key)
  local list, all, record, is_new = read_scope(key, place)
  if is_new then return end
  for code in pairs(all) do end_stock(all, record[STOCKS], code, now) end
  write_scope(key, list, all, record, now)
  call('HDEL', key, 'p:' .. place)
end
local function free_money(key, spent)
  -- true: the host's record is damaged. The money stays outstanding, as nobody knows what was charged of it.
  if spent ~= true and call('EXISTS', key) == 1 then
    grant_money(key, {0, 0, 0, 0, 0, 0, spent, false})
  end
end
for i, row in ipairs(rows) do
  local key, money_key = keys_of(i)
  attempt(free_counts, key)
  attempt(free_money, money_key, row.spent)
  call('SREM', HELD, row.scope)
end
return pack(call('SRANDMEMBER', HELD, ${PAGE_SCOPES}))
`,
);

/** What a node holds of a scope, or its host has spent of it. */
export interface ReportedRow {
  readonly scope: string;
  readonly stocks: readonly ReportedStock[];
  readonly money: RawAmount | false; // outstanding; false if the node holds none
  readonly spent: SpentRow; // if it is true, no node is granted the scope's money
}

/** A HeldStock (held-leases.ts). */
interface ReportedStock extends Readonly<Record<keyof HeldStock, number>> {
  readonly code: string;
}

/** Reports after a loss, or after the life was ended. Replies false if another life has come. */
export const REPORT_SCRIPT = nodeScript<LifeHead & CalendarHead, ReportedRow, boolean>(
  STOCKS_LUA,
  MONEY_LUA,
  `
local known = own_node()
if not known then return pack(false) end
local now = now_ms()
local function report_counts(key, stocks)
  if #stocks == 0 then return end
  local list, all, record = read_scope(key, place)
  local own = record[STOCKS]
  for _, stock in ipairs(stocks) do
    local code, period = stock.code, stock.period
    local current = period_of(code, now)
    if period > current + PERIODS_AHEAD then period = current end
    give_up_mistaken(key, all, own, code, current)
    grant_stock(all, own, {code, 0, period, stock.used, stock.unused, 0, 0}, now, current)
    if period == all[code][PERIOD] then all[code][SEEN] = max(all[code][SEEN], stock.seen) end
  end
  write_scope(key, list, all, record, now)
end
local function report_money(key, money, spent)
  if not money and not spent then return end
  if spent == true then
    call('HSET', key, 'u', 'host ' .. host .. ' cannot read what it has spent')
    return
  end
  local held = money or unpack_or(call('HGET', key, 'n:' .. place), {0, 0})
  grant_money(key, {held[1], held[2], 0, 0, 0, 0, spent, false})
end
for i, row in ipairs(rows) do
  local key, money_key = keys_of(i)
  attempt(report_counts, key, row.stocks)
  attempt(report_money, money_key, row.money, row.spent)
  if #row.stocks > 0 or row.money then call('SADD', HELD, row.scope) end
end
known[PAGES] = known[PAGES] + 1
call('HSET', NODES, place, pack(known))
return pack(true)
`,
);

/**
 * Reads scopes for an operator. Replies with a view of each; if a row of a scope cannot be read, with why.
 * Takes no rows: the scopes are those of the keys.
 */
export const VIEW_SCRIPT = nodeScript<
  { readonly slots: readonly number[] },
  never,
  readonly (RawView | string)[]
>(
  STOCKS_LUA,
  MONEY_LUA,
  `
local tick = floor(now_ms() / TICK)
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
  for _, slot in ipairs(head.slots) do
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
        local minute = {weighing = own_weighing, unexpired = own_unexpired, number = number}
        processes[#processes + 1] = {slot = slot, minute = minute, used = used}
      end
    end
  end
  return {minute = {weighing = weighing, unexpired = unexpired}, processes = processes, stocks = stocks,
    outstanding = {total[OUTSTANDING], total[OUTSTANDING + 1]}, spent = {total[SPENT], total[SPENT + 1]},
    reported = {by_host[1], by_host[2]}}
end
local views = {}
for i = 1, (#KEYS - 4) / 2 do
  local _, view = attempt(view_of, keys_of(i))
  views[i] = view
end
return pack(views)
`,
);
