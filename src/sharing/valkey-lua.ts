/**
 * `nodeScript`, which makes the Lua scripts of the coordinator, LUA_PRELUDE, with which they all begin, and a
 * list of the keys at the server. The parts of valkey-marks.ts and valkey-stocks.ts may follow, then a
 * script's own text, in valkey-exchange.ts, valkey-scripts.ts, valkey-life-scripts.ts and host-directory.ts.
 * Scripts run at the server, each atomically, in Lua 5.1 (Redis 7, Valkey). These files only make their text,
 * on the main thread.
 *
 * `ValkeyServer.run` gives each script its KEYS and ARGV, and LUA_PRELUDE their names: META, NODES, AWAITED
 * and HELD (the keys T:meta, T:nodes, T:awaited and T:held:P of its place P), `keys_of` for the two keys of
 * each scope, `place`, `host`, `head`, `rows`. Beside each script stands the type of its `head`, of a row and
 * of its reply. Their members have in the Lua the names that they have in TypeScript.
 *
 * Lua's numbers are doubles, exact to 2^53, and balances go to 9 × 10^18. An amount is therefore two numbers,
 * high × 10^9 + low, with 0 <= low < 10^9; high carries the sign. Sums of a million such amounts are exact.
 *
 * A permit _weighs_ (counts toward the limit) from its grant until a minute after the last moment at which it
 * may be used (grant-policy.ts). A token of the minute weighs for a minute after the server has heard that it
 * was used.
 *
 * Keys of a partition, all with one hash tag, T = {namespace:partition}. A place P is the host and the slot
 * of a node, as in host:slot. A record in a hash is one packed array. Times are in ms.
 *
 *     T:meta       hash
 *       format       see FORMAT
 *       partitions   how many there are; absent if a former version was the last to enter
 *       epoch        the name of the epoch, which is random
 *       until        nothing is granted before this time
 *       lost         when data was last lost, or 0
 *       checked      when a script last looked which server runs it, see SERVER_CHECK_MS
 *       fresh        1 if the host that found the server empty remembered no epoch
 *       places       the version of the list of nodes, a number that grows with every change of the list
 *       shares       1 once a node with an equal share has entered; absent before
 *       host:<host>  the epoch in which the host has reported what it spent
 *       gone:<host>  when an operator said that the host will not come back
 *       ended:<place>  when the life of the place was ended for that, until another one or the same enters
 *                    and of valkey-marks.ts:
 *       run          the id of the server that wrote last
 *       term         the server's term, see valkey-marks.ts
 *       checking     when the check under way began, or 0
 *       ahead        in the check: the least by which the clock seemed ahead of the former server's
 *       skew         how far the clock is ahead of the time that `now_ms` returns: the sum of all `ahead`
 *       born         when the server was found empty
 *       grown        1 once `born` is longer ago than a quarantine
 *       witnessed    the version of the list of nodes that a witness has heard of
 *     T:nodes      hash  P → the record of the node there, see NODE_FIELDS
 *     T:awaited    set   places that have to report, or to show their marks, before anything is granted
 *     T:held:P     set   scopes of which the node at P has a record, or holds money
 *     T:s:S        hash  of scope S, see valkey-stocks.ts. `write_scope` makes the key expire
 *       m            the permits of all nodes
 *       s            the stocks of all nodes
 *       p:P          the permits and stocks of the node at P
 *     T:m:S        hash  money of scope S, see valkey-stocks.ts. It does not expire
 *       a            of all nodes
 *       h:H          spent by host H
 *       n:P          outstanding of the node at P
 *       u            why it is not known what remains
 *
 * Sums over all nodes are kept, so an ask costs the same with two nodes and with two thousand.
 *
 * Must hold: the replies are those of `ScopeGrants` (scope-grants.ts) to the same asks. During an update,
 * hosts with scripts of the former version and of this version write the same keys: each has to read the
 * other's records, or FORMAT has to change. A script is one Lua function, which may have 200 locals: with
 * more the server rejects it. Tests: test/unit/sharing/valkey-coordinator.test.ts (random asks), which is
 * skipped without a redis-server.
 */
import { ZONE_OFFSET_MS } from '../ledger/day.js';
import { PERIODS_AHEAD_MAX } from '../ledger/stocks.js';
import * as policy from './grant-policy.js';
import { scriptOf, type ValkeyScript } from './valkey-client.js';

/**
 * The format of the records of scopes. A host that finds another format at the server must not enter while
 * the server hears nodes of other places, which are of a former version. Then it sets this format
 * (ENTER_SCRIPT).
 */
export const FORMAT = 3;

/** What the high part of an amount counts. The low part is below MONEY_BASE. */
export const MONEY_BASE = 1_000_000_000n;

/**
 * How long nothing is granted after data may have been lost: by then no permit from before weighs any more.
 * Of the sum, the first 1 is the tick in which a permit was granted, the last 1 the last in which it weighs.
 */
export const QUARANTINE_MS = (1 + policy.LONG_TICKS + policy.WEIGHING_TICKS + 1) * policy.GRANT_TICK_MS;

/**
 * How often a script checks which server runs it. This relies on servers, none of which restarts or takes
 * over in less time. Nothing checks that.
 */
export const SERVER_CHECK_MS = 20;

/**
 * An exchange that arrives so long after it was sent is not carried out: its node has given the exchange up
 * by then (EXCHANGE_DEADLINE_MS in open-hosts.ts), and may count its silence from an earlier moment. If the
 * node finds that the exchange was not so late, the server's clock was set forward.
 */
export const EXCHANGE_AGE_MS_MAX = 1_500;

/** The equal share of a node that was silent for longer is held back, because the node may soon use it. */
export const SILENT_MS = 20_000;

/**
 * The fields of a node's record. The number of each is its place in this list, so servers have the order on
 * record. valkey-marks.ts says what MARK to PAGES are for; the last two are there from the first exchange on.
 */
const NODE_FIELDS = [
  'INCARNATION', // the name of the life
  'SEQUENCE', // the number of the node's newest exchange; the next number has to be above it
  'HEARD_AT', // when the server last heard the node
  'EPOCH', // the epoch in which the node has reported, or ''
  'BACK', // when the node last came back from a silence
  'UNFREED', // 1 until the leases of earlier lives are freed, else 0
  'EQUAL_SHARES', // how many equal shares there are, of which the node has one, or 0 if it has none
  'MARK', // the number of the node's mark
  'MARK_SERVER', // the id of the server in the mark
  'MARK_VERSION', // the version of the list of nodes as of the mark
  'JOIN_VERSION', // the version with which the place joined, or 0 if a witness has heard of the join
  'JOINED', // when the place joined
  'FORMER', // the life before
  'PAGES', // how many pages the node has reported since it entered
  'EXPIRY', // by the node's settings: node_expiry_seconds in ms
  'ENDED_AFTER', // by the node's settings: PartitionOptions.endedAfterMs
];

const LUA_PRELUDE = `
local TICK, WEIGHING = ${policy.GRANT_TICK_MS}, ${policy.WEIGHING_TICKS}
local SHORT, LONG = ${policy.SHORT_TICKS}, ${policy.LONG_TICKS}
local QUIET, GRANT_PART, BASE = ${policy.QUIET_PART}, ${policy.GRANT_PART}, ${MONEY_BASE}
local QUARANTINE, SILENT, CHECK, AGE = ${QUARANTINE_MS}, ${SILENT_MS}, ${SERVER_CHECK_MS}, ${EXCHANGE_AGE_MS_MAX}
local DAY, SPECIFIED_ZONE, PERIODS_AHEAD = 86400000, ${ZONE_OFFSET_MS}, ${PERIODS_AHEAD_MAX}
local call, pack, floor, ceil = redis.call, cmsgpack.pack, math.floor, math.ceil
local max, min = math.max, math.min
local META, NODES, AWAITED, HELD = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
-- T:s:S and T:m:S of the scope S at that index, counted from 1.
local function keys_of(index) return KEYS[3 + 2 * index], KEYS[4 + 2 * index] end
local place, host, head, rows = ARGV[1], ARGV[2], cmsgpack.unpack(ARGV[3]), cmsgpack.unpack(ARGV[4])
local ${NODE_FIELDS.join(', ')} = ${NODE_FIELDS.map((_, index) => index + 1).join(', ')}
-- Throws unless the sum is a finite whole number: then no part of it is missing or a text.
local function assert_whole(sum, what) assert(sum - sum == 0 and sum == floor(sum), what) end
local function unpack_or(text, default) if text then return cmsgpack.unpack(text) end return default end
-- Whether the server's error says that a key is of another type than the command is for.
local function is_of_wrong_type(failure) return string.find(tostring(failure.err), 'WRONGTYPE', 1, true) ~= nil end
-- Calls work, which reads and writes the rows of one scope. Returns true and its result, or false and why a
-- row cannot be read: then only that scope gets no reply. Errors of Lua, such as that of a damaged row, are
-- texts. Errors of the server are tables, and end the script (no master, no memory). Only a key of the wrong
-- type is damage too.
local function attempt(work, ...)
  local ok, result = pcall(work, ...)
  if ok then return true, result end
  if type(result) ~= 'table' then return false, tostring(result) end
  if not is_of_wrong_type(result) then error(result) end
  return false, result.err
end
-- The server's time, or head.timeMs if that is not 0 (tests); less the skew of T:meta.
local function now_ms()
  -- 0 if it is damaged, or T:meta is no hash: state_of finds that out.
  local skew = tonumber(redis.pcall('HGET', META, 'skew') or 0) or 0
  if head.timeMs > 0 then return head.timeMs - skew end
  local t = call('TIME')
  return t[1] * 1000 + floor(t[2] / 1000) - skew
end

-- Amounts of money, each its high and its low part: ah and al, bh and bl, h and l.
local function norm(h, l) local carry = floor(l / BASE) return h + carry, l - carry * BASE end
local function add(ah, al, bh, bl) return norm(ah + bh, al + bl) end
local function sub(ah, al, bh, bl) return norm(ah - bh, al - bl) end
local function less(ah, al, bh, bl) return ah < bh or (ah == bh and al < bl) end
local function is_positive(h, l) return h > 0 or (h == 0 and l > 0) end
-- The amount divided by GRANT_PART, rounded up.
local function part_up(h, l)
  h, l = add(h, l, 0, GRANT_PART - 1)
  local quotient = floor(h / GRANT_PART)
  return norm(quotient, floor(((h - quotient * GRANT_PART) * BASE + l) / GRANT_PART))
end

-- The value of word in what INFO says of section. (In this file a backslash of Lua is doubled.)
local function info_of(section, word)
  return string.match(call('INFO', section), word .. ':([^\\r\\n]*)') or ''
end

-- The record of a node in T:nodes, from its text; nil if it cannot be read: then the node counts as lost.
local function node_in(text)
  local ok, node = pcall(cmsgpack.unpack, text)
  if not ok or type(node) ~= 'table' then return nil end
  for _, field in ipairs({SEQUENCE, HEARD_AT, BACK, EQUAL_SHARES}) do
    if type(node[field]) ~= 'number' then return nil end
  end
  return node
end
-- The record of the node at who, with all fields up to PAGES; nil if there is none, or it lacks some, as the
-- records of a former version do.
local function node_of(who)
  local text = call('HGET', NODES, who)
  local node = text and node_in(text)
  for _, field in ipairs({MARK, MARK_VERSION, JOIN_VERSION, JOINED, PAGES}) do
    if not node or type(node[field]) ~= 'number' then return nil end
  end
  return node
end
-- The longer of the time that the node has in the field and the time by the asking node's settings (own):
-- the settings of hosts may differ.
local function longer_of(node, field, own) return max(own, node and tonumber(node[field]) or 0) end
-- The record of the node that asks; nil if the place has another life than head.incarnation by now.
local function own_node()
  local node = node_of(place)
  return node and node[INCARNATION] == head.incarnation and node or nil
end
local function host_of(who) return string.match(who, '^(.*):%d+$') end
local function is_gone(who)
  return call('HEXISTS', META, 'gone:' .. (host_of(who) or '')) == 1
end
`;

/** A Lua script about a node. `ValkeyServer.run` takes what it wants, and resolves with what it returns. */
export interface NodeScript<Head extends object, Row, Reply> extends ValkeyScript {
  /** For the compiler alone. Is never set. */
  readonly types?: (head: Head, rows: readonly Row[]) => Reply;
}

/** What `own_node` looks at. */
export interface LifeHead {
  /** The name of the life that asks. */
  readonly incarnation: string;
}

/** `parts` follow LUA_PRELUDE: parts that several scripts have, then the script's own text. */
export function nodeScript<Head extends object, Row, Reply>(
  ...parts: readonly string[]
): NodeScript<Head, Row, Reply> {
  return scriptOf(LUA_PRELUDE + parts.join(''));
}
