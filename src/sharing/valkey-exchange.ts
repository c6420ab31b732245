/**
 * The exchange of a node with one partition of the server: the script, the types of what it takes and
 * returns, and `lossOf`, the error for an exchange that was not carried out. valkey-partition.ts runs it. The
 * script does to the keys of a partition what `ScopeGrants` (scope-grants.ts) does to its objects: change
 * both together. valkey-lua.ts has the names that it begins with. It runs at the server; this file makes its
 * text, on the main thread. docs/sharing.md shows the messages of `lossOf` to operators.
 *
 * Must hold: the script replies as `ScopeGrants` does (test/unit/sharing/valkey-coordinator.test.ts compares
 * them over random rounds). A row that cannot be read costs its own scope alone (valkey-damage.test.ts).
 * Money is freed only of nodes that can charge nothing any more (valkey-killed-process.test.ts).
 */
import { CoordinatorLost, unknownNode } from './coordinator.js';
import type { PromisedTerm } from './sharing-memory.js';
import type { RawAsk, RawReply } from './valkey-codec.js';
import { type LifeHead, nodeScript } from './valkey-lua.js';
import { type Mark, MARKS_LUA, type WantsTerm } from './valkey-marks.js';
import { type CalendarHead, MONEY_LUA, STOCKS_LUA } from './valkey-stocks.js';

/**
 * Replies to `ask`, a MinuteAsk, with a MinuteGrant, as `MinuteBuckets.reply` in scope-grants.ts. `list` is m
 * of the scope, and `record` the row p:P of the node that asks: see STOCKS_LUA. `held_back` returns how many
 * of a limit's permits are held back for silent nodes. Returns also the new m; the caller writes m and p:P.
 */
const MINUTE = `
local function grant_minute(list, record, ask, now, held_back)
  local returned, used, order = ask.returned, ask.used or {}, ask.order
  local permits, last_grant = within(record[PERMITS], list), record[LAST_GRANT]
  local tick = floor(now / TICK)
  -- The node has not heard of its last grant, so it has not used it: only that grant is taken back. What this
  -- ask returns and names as used was recorded with the last ask, which named the same.
  if order and last_grant and last_grant[1] == head.incarnation and last_grant[2] > order.heardNumber then
    returned, used = {{tick = last_grant[3], count = last_grant[4]}}, {}
  end
  local function take_back(from, count, to)
    -- Never more than the node has at that tick: the rest has no weight any more.
    count = min(count, count_at(permits, from))
    for _, counts in ipairs({list, permits}) do
      put(counts, from, -count)
      if to then put(counts, to, count) end
    end
  end
  for _, granted in ipairs(returned) do take_back(granted.tick, granted.count) end
  for _, granted in ipairs(used) do
    -- A used permit weighs as if it were granted now with the shortest validity, unless it expires sooner.
    if granted.tick > tick + SHORT then take_back(granted.tick, granted.count, tick + SHORT) end
  end
  local limit = ask.limit - held_back(ask.limit)
  local new_list, weighing, unexpired = weigh(list, tick)
  local new_permits, _, own_unexpired = weigh(permits, tick)
  local granted = granted_of(limit - weighing, ask.least, ask.most)
  weighing = weighing + granted
  -- The last tick in which the grant may be used, as expiryTickOf in grant-policy.ts.
  local last = tick + SHORT
  local is_long = ask.isFallback or weighing * QUIET <= limit
  if is_long then last = tick + min(LONG, max(SHORT, ceil(ask.forMs / TICK))) end
  put(new_list, last, granted)
  put(new_permits, last, granted)
  local reply = {granted = granted, remaining = max(0, limit - weighing), heldByOthers = unexpired > own_unexpired,
    tick = last, validMs = (last + 1) * TICK - now, freeInMs = free_in(new_list, weighing - limit + 1, now)}
  record[PERMITS] = new_permits
  if order then record[LAST_GRANT] = {head.incarnation, order.number, last, granted} end
  return reply, new_list
end
`;

/** Frees what nodes held that were silent for so long that they have no call any more (`endedAfterMs`). */
const SILENT_NODES = `
-- Whether the node has been silent for so long that it has no call any more. node may be nil.
local function has_ended(node, silent_ms) return silent_ms > longer_of(node, ENDED_AFTER, head.endedAfterMs) end
-- Removes awaited places that have no call any more, because they have been silent since the loss, silent_ms
-- ago, and whose host has reported since what it has spent: nothing more can be spent of what they held.
local function drop_silent_awaited(epoch, silent_ms)
  -- The time is that of this node at least: before it the places, which may be many, are not read.
  if not has_ended(nil, silent_ms) then return end
  for _, who in ipairs(call('SMEMBERS', AWAITED)) do
    local of_host = host_of(who)
    local has_reported = of_host and call('HGET', META, 'host:' .. of_host) == epoch
    if has_reported and has_ended(node_of(who), silent_ms) then call('SREM', AWAITED, who) end
  end
end
-- Ends the call slots and the tokens of the minute of other nodes that were silent for so long.
local function drop_silent(key, all, now)
  for who, record in pairs(others_of(key)) do
    local known = node_of(who)
    local stocks = record[STOCKS]
    local holds = stocks.f or stocks.w
    if holds and (not known or has_ended(known, now - known[HEARD_AT])) then
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
local function drop_silent_money(key, now)
  local total, rows, silent = read_money(key, place, host), call('HGETALL', key), {}
  for i = 1, #rows, 2 do
    local who = string.match(rows[i], '^n:(.*)$')
    local known = who and who ~= place and host_of(who) == host and node_of(who)
    if known and has_ended(known, now - known[HEARD_AT]) then
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

const EXCHANGE = `
local now, heard = now_ms(), head.heard
local s = state_of(now)
local function refusal(status, wait_ms, awaited)
  return pack({status = status, nowMs = now, waitMs = wait_ms or 0, awaited = awaited or {}})
end
-- The node's record is not written before all of these checks: an exchange that fails one is no sign of life.
if not s then return refusal('unknown') end
local node = own_node()
if not node then return refusal('unknown') end
if head.sequence <= node[SEQUENCE] then return refusal('old') end
if not has_promised(s, now) then return pack({status = 'term', wanted = {term = s.term, server = s.run}}) end
if head.sentAtMs > 0 and now - head.sentAtMs > AGE then return refusal('aged') end
if head.equalShares > 0 and now - node[HEARD_AT] > SILENT then node[BACK] = now end
node[SEQUENCE], node[HEARD_AT] = head.sequence, now
node[EXPIRY], node[ENDED_AFTER] = head.expiryMs, head.endedAfterMs
local function refuse(...)
  call('HSET', NODES, place, pack(node))
  return refusal(...)
end
if node[EPOCH] == s.epoch and not has_heard(node, heard) then lose(s, now, now + QUARANTINE) end
if node[EPOCH] ~= s.epoch then return refuse('report', max(0, s.till - now)) end
witness(s, node, heard)
if s.checking > 0 and not is_checked(s, now, head.sentAtMs) then
  if s.checking == 0 then return refuse('report', max(0, s.till - now)) end
  return refuse('check', max(TICK, s.checking + QUARANTINE - now), call('SRANDMEMBER', AWAITED, 3))
end
if call('SCARD', AWAITED) > 0 then
  drop_silent_awaited(s.epoch, now - s.lost)
  return refuse('quarantine', max(TICK, s.till - now), call('SRANDMEMBER', AWAITED, 3))
end
if now < s.till then return refuse('quarantine', s.till - now) end
if not is_witnessed(s, node, now) then return refuse('new', node[JOINED] + QUARANTINE - now) end
node[MARK], node[MARK_SERVER], node[MARK_VERSION] = head.sequence, s.run, s.places
call('HSET', NODES, place, pack(node))

-- How many permits of the limit are held back: the equal shares of silent nodes, until QUARANTINE after they
-- are back or expire. Settings of hosts may differ, so each share is the one that its own node uses.
local silent -- how many such nodes there are, by their number of shares; counted for the first ask
local function held_back(limit)
  if not silent then
    silent = {}
    -- Without a share anywhere the list of nodes, which may be long, is not read.
    local has_shares = head.equalShares > 0 or call('HGET', META, 'shares')
    local all = has_shares and call('HVALS', NODES) or {}
    for i = 1, #all do
      local n = node_in(all[i])
      local silent_ms = n and now - n[HEARD_AT]
      -- A node whose record is damaged may use its share, too: one as this node has.
      local shares = n and n[EQUAL_SHARES] or head.equalShares
      local may_use = not n or now - n[BACK] < QUARANTINE
        or (silent_ms > SILENT and silent_ms <= longer_of(n, EXPIRY, head.expiryMs) + QUARANTINE)
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
  local minute, stocks, money, inherited = ask.minute, ask.stocks, ask.money, ask.inherited
  local reply = {}
  local held_before, holds = false, false
  -- Throws if a row of the money is damaged, before anything of the scope is written.
  if money then read_money(money_key, place, host) end
  if minute or stocks then
    local list, all, record, is_new = read_scope(key, place)
    local own = record[STOCKS]
    -- A rotated key begins with what the key before it had used.
    if inherited and is_new then
      put(list, floor(inherited.takenMs / TICK), inherited.minuteUsed)
      for _, used in ipairs(inherited.stocks) do all[used.code] = {used.period, used.used, 0, 0, 0} end
    end
    held_before = has_content(record)
    if minute then reply.minute, list = grant_minute(list, record, minute, now, held_back) end
    if stocks then
      reply.stocks = {}
      for j, stock in ipairs(stocks) do
        local code, most = stock[1], stock[7]
        local current = period_of(code, now)
        give_up_mistaken(key, all, own, code, current)
        local stock_reply = grant_stock(all, own, stock, now, current)
        -- Too few slots or tokens are left. What silent nodes hold of these may be free by now.
        if stock_reply[1] == 0 and most > 0 and (code == 'f' or code == 'w') then
          drop_silent(key, all, now)
          stock_reply = grant_stock(all, own, stock, now, current)
        end
        reply.stocks[j] = stock_reply
      end
    end
    holds = has_content(record)
    write_scope(key, list, all, record, now)
  end
  local is_short = false
  if money then
    local holds_money, held_money
    reply.money, holds_money, held_money = grant_money(money_key, money)
    -- money[5] and [6]: the most that the ask wants.
    is_short = reply.money[1] == 0 and reply.money[2] == 0 and is_positive(money[5], money[6])
    holds, held_before = holds or holds_money, held_before or held_money
  end
  -- The scope stays in the set until the node's end, because an ask may name only some of the resources. It
  -- is there before anything below throws, or the end of the node would not free what was granted above.
  if holds and not held_before then call('SADD', HELD, ask.scope) end
  if is_short and drop_silent_money(money_key, now) then
    reply.money, holds = grant_money(money_key, money)
    if holds then call('SADD', HELD, ask.scope) end
  end
  return reply
end

local replies = {}
for i, ask in ipairs(rows) do
  local _, reply_or_damage = attempt(carry_out, ask, keys_of(i))
  replies[i] = reply_or_damage
end
return pack({status = 'ok', nowMs = now, epoch = s.epoch, replies = replies, places = s.places})
`;

interface ExchangeHead extends LifeHead, CalendarHead {
  readonly sequence: number; // above that of the node's last exchange
  /** The least that the server's clock can have shown when the exchange was sent; 0 if not known. */
  readonly sentAtMs: number;
  /** How many equal shares there are, also if this node has none; 0 if limits are never divided. */
  readonly equalShares: number;
  readonly expiryMs: number; // PartitionOptions.nodeExpiryMs
  readonly endedAfterMs: number; // PartitionOptions.endedAfterMs
  readonly heard: Mark;
  readonly promised: PromisedTerm;
}

/** Why the script carried nothing out. */
export type RefusedStatus =
  | 'unknown' // this life is not known: enter
  | 'old' // the sequence is not above that of the last exchange
  | 'aged' // the exchange came too late, or the server's clock was set forward
  | 'report' // enter again, and report all that is held
  | 'quarantine' // wait: the server has lost data, and `awaited` have to report
  | 'check' // wait: `awaited` have to show their marks
  | 'new'; // wait until another node has heard of this one

type Exchanged =
  | WantsTerm
  | {
      readonly status: 'ok';
      readonly nowMs: number;
      readonly epoch: string;
      /** In the order of the asks. A text says why a row of the scope cannot be read: nothing is granted. */
      readonly replies: readonly (RawReply | string)[];
      readonly places: number; // the version of the list of nodes
    }
  | {
      readonly status: RefusedStatus;
      readonly nowMs: number;
      readonly waitMs: number;
      readonly awaited: readonly string[]; // some of the places that the server waits for
    };

/** Takes the asks of a node to one partition as rows, with the two keys of the scope of each. */
export const EXCHANGE_SCRIPT = nodeScript<ExchangeHead, RawAsk, Exchanged>(
  MARKS_LUA,
  STOCKS_LUA,
  MINUTE,
  MONEY_LUA,
  SILENT_NODES,
  EXCHANGE,
);

/** Of these the statuses by which the server has lost data, or counts as one that has. */
export const LOSSES: ReadonlySet<RefusedStatus> = new Set(['unknown', 'report', 'quarantine', 'aged']);

/** The error for a refused exchange. `waitMs`: how long a quarantine still lasts. */
export function lossOf(status: RefusedStatus, waitMs = 0, awaited: readonly string[] = []): CoordinatorLost {
  const seconds = Math.ceil(waitMs / 1_000);
  const missing = `${awaited.join(', ')} and maybe others have not`;
  switch (status) {
    case 'unknown':
      return unknownNode();
    case 'report':
    case 'quarantine':
      return new CoordinatorLost(
        'quarantine',
        `the server may have lost data; nothing is lent for ${seconds} s, and until all hosts have reported` +
          (awaited.length === 0 ? '' : `: ${missing}`),
        { waitMs },
      );
    case 'check':
      return new CoordinatorLost(
        'checking',
        'the server is another one than before, and lends nothing until all hosts have found that it lost ' +
          `nothing, for ${seconds} s at most: ${missing}`,
      );
    case 'new':
      return new CoordinatorLost(
        'checking',
        'this host is new to the server, and is lent nothing until another one was heard',
      );
    case 'aged':
      return new CoordinatorLost('quarantine', "the server's clock was set forward");
    case 'old':
      return new CoordinatorLost('failing', `the server refused an exchange: ${status}`);
  }
}
