/**
 * The protocol between nodes and their coordinator, which knows all limits and all money and grants them in
 * leases. The implementations are lmdb-coordinator.ts (processes of one host) and valkey-coordinator.ts
 * (hosts), which equal-share.ts wraps. Tests have another one, test/support/memory-coordinator.ts.
 * lease-manager.ts, debits.ts, shared-registry.ts and fallback-coordinator.ts call a coordinator. Main thread
 * of a gateway process.
 *
 * A node is one life of a gateway process. It counts by itself what it uses of its grants, and gives back
 * what it does not use. What is granted counts as used until the node reports otherwise, so all nodes
 * together never exceed a limit.
 *
 * There are two kinds of resources:
 * - Permits of the minute expire. A grant that is valid to the end of tick E counts as used at the end of E,
 *   so it weighs (counts toward the limit) until a minute after E. A longer validity exceeds no limit: the
 *   permits only weigh longer. If the reply with a grant is lost, the next ask says so by its order
 *   (AskOrder), and the coordinator takes the grant back.
 * - Stocks, which are all other resources, are granted by state. Every ask reports what the node has used and
 *   holds now. The coordinator records the report, and adds what it grants. So the next ask takes back a
 *   grant whose reply was lost.
 *
 * A node makes one exchange at a time and numbers its exchanges. A coordinator ignores an exchange that is
 * not newer than the last one of that node, so a delayed duplicate does no harm.
 *
 * Must hold: all nodes together never exceed a limit, whatever messages are lost or come twice. Tests: both
 * coordinators pass test/support/authority-conformance.ts; test/unit/sharing/lease-laws.test.ts runs nodes
 * over three windows.
 */
import type { Calendar } from '../core/calendar.js';
import type { QuotaName } from '../core/quotas.js';
import type { PicoUnits, WallMs } from '../core/units.js';
import { type DayCount, dayNumberOf } from '../ledger/day.js';
import type { SettledQuotas } from '../ledger/scope-quotas.js';

/** The most asks in one exchange: they are some 100 KB, and take a coordinator some milliseconds. */
export const EXCHANGE_ASKS_MAX = 1_000;

/**
 * A process has a second node, for what an operator takes out of accounts. If that node fails, calls keep
 * their leases. Its slot is the slot of the process, which is below this number, plus this number. Slots of
 * the nodes of fallback quotas begin at FALLBACK_SLOTS_FROM (open-hosts.ts).
 */
export const DEBIT_SLOTS_FROM = 1_000_000;

export interface NodeIdentity {
  /** The host's id, made once for each data directory. */
  readonly host: string;
  /** The process's slot in its group; other nodes of the process add to it (DEBIT_SLOTS_FROM). */
  readonly slot: number;
  /** Random, and another one for each life. */
  readonly incarnation: string;
}

/** The money of an account, or a quota. */
export type StockName = 'balance' | CountedName;
/** A stock whose amounts are numbers up to 2^53. */
export type CountedName = Exclude<QuotaName, 'requests_per_minute'>;

/**
 * What becomes of an amount that was used, and of an amount that a life held when it ended:
 * - `balance`: the host's store has what was spent; what was held is free again.
 * - `flight`: call slots come back when calls end; what was held is free again.
 * - `window`: what was used weighs for a minute from the tick in which the coordinator hears of the use. What
 *   was held counts as used when the life ends.
 * - `period`: what was used or held stays used until the period ends.
 */
export type StockKind = 'balance' | 'flight' | 'window' | 'period';

export const STOCK_KINDS: Readonly<Record<StockName, StockKind>> = {
  balance: 'balance',
  calls_in_flight: 'flight',
  tokens_per_minute: 'window',
  calls_per_day: 'period',
  tokens_per_day: 'period',
  calls_per_month: 'period',
  tokens_per_month: 'period',
  spend_per_day: 'period',
  spend_per_month: 'period',
};
export const STOCK_NAMES = Object.keys(STOCK_KINDS) as StockName[];

/** The number of the day or month that a stock is counted in now; 0 if it has no period. */
export type PeriodOf = (name: StockName) => number;

/**
 * The period of a stock at `wallMs`, as PeriodOf. `calendar` has the settings' time zone; calls a day are
 * counted in UTC+8 whatever it is (ledger/day.ts).
 */
export function periodAt(name: StockName, calendar: Calendar, wallMs: WallMs): number {
  if (STOCK_KINDS[name] !== 'period') return 0;
  if (name === 'calls_per_day') return dayNumberOf(wallMs);
  return (name.endsWith('_day') ? calendar.dayAt(wallMs) : calendar.monthAt(wallMs)).number;
}

/** The unit in which spending is leased: so many pico-units, a nano-unit. Sums are then exact as numbers. */
export const SPEND_UNIT = 1_000n;

/** A value for each of some stocks. A stock that is left out is not part of the ask or the reply. */
export type Stocks<Value> = Readonly<Partial<Record<StockName, Value>>>;

/** The stocks that are not left out, with their values. */
export function entriesOf<Value>(stocks: Stocks<Value>): [StockName, Value][] {
  return Object.entries(stocks) as [StockName, Value][];
}

/** What was used of a stock in the period, in the unit of StockAsk. */
export interface PeriodUse {
  readonly period: number;
  readonly used: number;
}

/** What the scope has used of each day and month: calls of a day by `calls`, all others by `quotas`. */
export function periodUsesOf(calls: DayCount, quotas: SettledQuotas | undefined): Stocks<PeriodUse> {
  const callsUse = { calls_per_day: { period: calls.dayNumber, used: calls.dayCalls } };
  if (quotas === undefined) return callsUse;
  const { dayNumber, monthNumber } = quotas;
  return {
    ...callsUse,
    tokens_per_day: { period: dayNumber, used: quotas.tokensPerDay },
    spend_per_day: { period: dayNumber, used: quotas.spendPerDay },
    calls_per_month: { period: monthNumber, used: quotas.callsPerMonth },
    tokens_per_month: { period: monthNumber, used: quotas.tokensPerMonth },
    spend_per_month: { period: monthNumber, used: quotas.spendPerMonth },
  };
}

/** Returns the same stocks, each with the value that `newValueOf` returns. */
export function mapStocks<From, To>(
  stocks: Stocks<From>,
  newValueOf: (value: From, name: StockName) => To,
): Stocks<To> {
  return Object.fromEntries(entriesOf(stocks).map(([name, value]) => [name, newValueOf(value, name)]));
}

/** Some permits of an earlier grant. They may have expired since. */
export interface GrantedPermits {
  /** MinuteGrant.tick of the earlier grant. Nodes that are cut off use ticks below 0 (replies-alone.ts). */
  readonly tick: number;
  readonly count: number;
}

/**
 * The order of a node's asks for one scope's minute. If the replies to asks 5 and 6 were lost, ask 7 has
 * `heardNumber` 4: the node has no grant of 5 and 6, and will use none, so the coordinator takes these back.
 * Ask 7 repeats what 5 and 6 returned or named as used, because the coordinator may lack these asks.
 */
interface AskOrder {
  /** Grows from ask to ask. */
  readonly number: number;
  /** At least the number of the last ask whose reply came. */
  readonly heardNumber: number;
}

/** How much more is wanted: from `least` to `most`, or nothing. Both are 0 if the ask only reports. */
export interface Wanted<Amount> {
  readonly least: Amount;
  readonly most: Amount;
}

export interface MinuteAsk extends Wanted<number> {
  /** The limit in force at the node that asks. */
  readonly limit: number;
  /** How long the permits should be valid; the coordinator decides. */
  readonly forMs: number;
  /** Whether the ask is of a fallback quota, which is hardly ever used: its permits are valid for long. */
  readonly isFallback?: boolean;
  /** Permits that were not used and will not be. */
  readonly returned: readonly GrantedPermits[];
  /**
   * Permits of grants that are still valid, which calls took before the ask was sent. So calls use them
   * within TAKE_MS_MAX (ledger/leased-window.ts) of that moment. They weigh for a minute from the ask on, and
   * not from the expiry of the grant.
   */
  readonly used?: readonly GrantedPermits[];
  /** Without an order, a grant in a lost reply weighs as if it had been used. */
  readonly order?: AskOrder;
}

/** What all processes of a host have charged an account, by the host's store; or what was ever credited. */
export interface VersionedTotal {
  readonly totalPicoUnits: PicoUnits;
  /** Grows with each change of the total. The newest counts, not the largest total: charges are reversed. */
  readonly version: number;
}

/** Amounts are calls, tokens, multiples of SPEND_UNIT or, for the balance, pico-units. */
export interface StockAsk extends Wanted<bigint> {
  /** The limit in force at the node that asks. 0 for the balance: what was credited is its limit. */
  readonly limit: bigint;
  /**
   * The number of the day or month of the counts, by the node's calendar; 0 for stocks without a period. The
   * latest period that any node has named counts. But a period that is too far ahead of the coordinator's
   * calendar is a mistake of a clock (PERIODS_AHEAD_MAX in ledger/stocks.ts): its counts count in the right
   * period.
   */
  readonly period: number;
  /**
   * What this life has used in the period, less what it gave back or reversed. Of a `window`: what it has
   * used since it began, so that an ask that comes twice does no harm. Of `flight` and `balance`: 0.
   */
  readonly used: bigint;
  /**
   * What this node was granted and has not used; what calls hold is in it. Of the balance: what was granted
   * and is not spent in the host's store. It is read before the store's total (VersionedTotal): then a charge
   * that is flushed in between is counted twice for a moment, and never left out
   * (test/unit/sharing/spent-order.test.ts).
   */
  readonly unused: bigint;
}

/** What one node reports and wants of one scope. A resource that is left out gets no reply. */
export interface LeaseAsk {
  /** The id of an account, a key or a group, or the name of an upstream. */
  readonly scope: string;
  readonly minute?: MinuteAsk;
  readonly stocks?: Stocks<StockAsk>;
}

interface Grant<Amount> {
  /** From `least` to `most` of the ask, or 0. */
  readonly granted: Amount;
  /** What the coordinator could still grant to any node, after this grant. */
  readonly remaining: Amount;
  /**
   * Whether other nodes hold unexpired permits, or some of the stock that they have not used. They may give
   * these back, so a request may wait. True also if that is not known.
   */
  readonly heldByOthers: boolean;
}

export interface MinuteGrant extends Grant<number> {
  /** The permits are valid to the end of this tick. `GrantedPermits` names the grant by the tick. */
  readonly tick: number;
  /** How long the permits are valid. The node counts from when it sent the ask, to be on the safe side. */
  readonly validMs: number;
  /** In how many ms a permit will be free if no node gives one back; 0 if one remains now. */
  readonly freeInMs: number;
}

export interface StockGrant extends Grant<bigint> {
  /**
   * The period of the grant: that of the ask, or a later one that another node has named. An earlier period
   * means that the ask's period was a mistake of a clock. Then nothing of the ask was recorded, and the
   * record still has all that this node took before. The node goes on in the earlier one (stock-leases.ts).
   */
  readonly period: number;
  /** Of a `window`: in how many ms `least` is free if no node gives any back; 0: now, or not known. */
  readonly freeInMs: number;
}

/** The reply to one ask: a grant of each resource that was asked for. */
export interface LeaseReply {
  readonly minute?: MinuteGrant;
  readonly stocks?: Stocks<StockGrant>;
  /**
   * True if something that was wanted was not granted although some may be there: the coordinator could not
   * be asked, or its record of the scope is damaged.
   */
  readonly isUnknown?: boolean;
}

export interface ExchangeReply {
  /** What the coordinator's calendar showed when it replied. */
  readonly wallMs: WallMs;
  /** The replies, in the order of the asks. */
  readonly replies: readonly LeaseReply[];
  /** Set if the node replied to itself because it is cut off: what it gives back now reaches no node. */
  readonly isAlone?: true;
}

/** What all nodes together have of a stock, as far as they have reported. */
export interface StockView {
  readonly period: number;
  /** What nodes have reported as used. Of a `window`: what weighs now. */
  readonly used: bigint;
  /** The sum of StockAsk.unused of all nodes, and what ended lives held, because they no longer report. */
  readonly unused: bigint;
}

/** What is on record of the minute: of all nodes, or of one. */
export interface MinuteView {
  /** Permits that weigh now, whether they were used or not. */
  readonly weighing: number;
  /** How many of the weighing permits may still be used. */
  readonly unexpired: number;
}

/** What one process of this host had used by its last ask, as the coordinator has it on record. */
export interface ProcessView {
  readonly slot: number;
  /** `number`: of the process's last ask for the minute; 0 if there was none. */
  readonly minute: MinuteView & { readonly number: number };
  /** `StockAsk.used` of the last ask, for each stock of the kinds that have it. */
  readonly used: Stocks<bigint>;
}

/** What all nodes together use of a scope, for an operator. */
export interface ScopeView {
  readonly scope: string;
  readonly minute: MinuteView;
  /** The stocks that were ever asked for. */
  readonly stocks: Stocks<StockView>;
  /** Of the processes in `slots` of `view`, those that have asked for anything. */
  readonly processes: readonly ProcessView[];
  /** Spent by all hosts: by this host as its store says, by the others as far as they have reported. */
  readonly spent: PicoUnits;
}

/** Why a coordinator could not be asked. */
export type LossReason =
  /** No connection, or it broke. */
  | 'unreachable'
  /** No reply in time; the exchange may have been carried out or not. */
  | 'deadline'
  /** The coordinator replied that it cannot: full, read-only, wrong password. */
  | 'failing'
  /** The coordinator has lost its data, and waits until no node can exceed a limit. */
  | 'quarantine'
  /** The coordinator may have lost data, and is finding out. */
  | 'checking'
  /** The coordinator does not know this life of the node, or has ended it: join again. */
  | 'unknown_node'
  /** `close` was called. */
  | 'closed';

/** The coordinator was lost. The node was granted nothing; its reports may have been recorded or not. */
export class CoordinatorLost extends Error {
  /** An error code of docs/errors.md, which kept the former word for the coordinator. */
  readonly code = 'authority_lost';
  readonly reason: LossReason;

  /** For how many ms nothing will be granted; undefined if that is not known. */
  readonly waitMs: number | undefined;

  constructor(reason: LossReason, message: string, options?: ErrorOptions & { readonly waitMs?: number }) {
    super(message, options);
    this.name = 'CoordinatorLost';
    this.reason = reason;
    this.waitMs = options?.waitMs;
  }
}

/** Names a node at its coordinator, in all its lives. */
export function placeOf({ host, slot }: Pick<NodeIdentity, 'host' | 'slot'>): string {
  return `${host}:${slot}`;
}

/** The scope of an account's rule for a model. No id of an account has a slash. */
export function modelScope(accountId: string, modelId: string): string {
  return `${accountId}/${modelId}`;
}

/** The rejection of a life that the coordinator does not know, or has ended. */
export function unknownNode(): CoordinatorLost {
  return new CoordinatorLost('unknown_node', 'this life of the node is not known');
}

/** What a node calls. Every call ends within some seconds: at the latest it rejects with CoordinatorLost. */
export interface Coordinator {
  /** lease-manager.ts sets it. Called when the coordinator may be there again after a loss. */
  onBack?: () => void;
  /**
   * Makes this life of the node known, and ends earlier lives at the same place. Their permits expire;
   * StockKind says what becomes of their stocks. Call it before the first exchange, and again after
   * `unknown_node`. Resolves with what the coordinator's calendar showed. One round trip. Rejects with
   * CoordinatorLost.
   */
  join(): Promise<WallMs>;
  /**
   * Carries at most EXCHANGE_ASKS_MAX asks, each of another scope. An exchange without asks is a sign of
   * life. Each ask is carried out by itself, and so is each of its resources. Wait for the end of the last
   * exchange before the next. One round trip.
   *
   * Rejects with CoordinatorLost: then the exchange may have been carried out or not. The next ask reports
   * what is held anyway. Only an ask with an `order` may return the same permits again.
   */
  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply>;
  /**
   * Returns views in the order of `scopes`, of which there are at most EXCHANGE_ASKS_MAX. All numbers are 0
   * for an unknown scope. A scope whose record is damaged is left out, so go by ScopeView.scope. `slots`: the
   * processes of this host to show one by one. `view` may run during an exchange. Rejects with
   * CoordinatorLost.
   */
  view(scopes: readonly string[], slots?: readonly number[]): Promise<ScopeView[]>;
  /** Ends the node and this life. Rejects with CoordinatorLost. */
  leave(): Promise<void>;
  /** Closes connections and files, and sends nothing. Pending calls reject with CoordinatorLost. */
  close(): Promise<void>;
}
