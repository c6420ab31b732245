/**
 * The protocol between nodes and their coordinator, which knows all limits and all money and grants them in
 * leases. The implementations are `LmdbCoordinator` (processes of one host) and `ValkeyCoordinator` (hosts);
 * `EqualShare` wraps the latter. Tests have a reference, test/support/memory-coordinator.ts. `LeaseManager`
 * and `DebitService` call it. Main thread of a gateway process.
 *
 * A node is one life of a gateway process. It counts by itself what it uses of its grants. It gives back what
 * it does not use, or that expires. A permit counts as used from the moment it is granted, so all nodes
 * together never exceed a limit.
 *
 * There are two kinds of resources:
 * - Permits of the minute have a limited validity. The coordinator counts a grant that is valid to the end
 *   of tick E as used at the end of E, and it weighs for a minute after that. So any validity is exact, and a
 *   longer one only weighs longer. If the reply with a grant is lost, the next ask says by its order that the
 *   node has not heard of it, and the grant is taken back.
 * - Stocks, which are all other resources, are granted by state. Every ask says what the node has used and
 *   holds now, and the coordinator records that and what it grants more. The next ask thereby takes back a
 *   lost grant.
 *
 * A node makes one exchange at a time and numbers them. A coordinator ignores an exchange that is not newer
 * than the last one of that node, so a delayed duplicate does no harm.
 *
 * Must hold: all nodes together never exceed a limit, whatever messages are lost or come twice. Tests: both
 * coordinators pass test/support/authority-conformance.ts; test/unit/sharing/lease-laws.test.ts (three
 * windows).
 */
import type { Calendar, QuotaName } from '../core/quotas.js';
import type { PicoUnits, WallMs } from '../core/units.js';
import { dayNumberOf } from '../ledger/day.js';
import type { SettledQuotas } from '../ledger/scope-quotas.js';

/** The most asks in one exchange: some 100 KB, and some milliseconds of a coordinator's time. */
export const EXCHANGE_ASKS_MAX = 1_000;

/**
 * A process has a second node, for what an operator takes out of accounts: if that one fails, calls keep
 * their leases. Its slot is that of the process and so many more.
 */
export const DEBIT_SLOTS_FROM = 1_000_000;

/** The life that a lease belongs to. */
export interface NodeIdentity {
  /** Made once for each data directory. */
  readonly host: string;
  /** Index of the process in its group. */
  readonly slot: number;
  /** Random, anew for each life. */
  readonly incarnation: string;
}

/** The money of an account, or a quota. */
export type StockName = 'balance' | Exclude<QuotaName, 'requests_per_minute'>;

/**
 * What becomes of a stock that was used, and of one that an ended life held:
 * - `balance`: the host's store has what was spent; what was held is free.
 * - `flight`: call slots come back when calls end; what was held is free.
 * - `window`: what was used weighs for a minute from the tick in which the coordinator hears of it. What was
 *   held counts as used when the life ends.
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

/** The same at `wallMs`. `calendar`: of all days and months but those of calls a day, which are in UTC+8. */
export function periodAt(name: StockName, calendar: Calendar, wallMs: WallMs): number {
  if (STOCK_KINDS[name] !== 'period') return 0;
  if (name === 'calls_per_day') return dayNumberOf(wallMs);
  return (name.endsWith('_day') ? calendar.dayAt(wallMs) : calendar.monthAt(wallMs)).number;
}

/** Spending is leased in whole nano-units, so that sums of it are exact as numbers. */
export const SPEND_UNIT = 1_000n;

/** Keyed by name. A stock that is left out is not part of the ask or the reply. */
export type Stocks<Of> = Readonly<Partial<Record<StockName, Of>>>;

/** The entries of `stocks` that are there. */
export function entriesOf<Of>(stocks: Stocks<Of>): [StockName, Of][] {
  return Object.entries(stocks) as [StockName, Of][];
}

/** What was used of a stock in a day or month with that number. */
export interface PeriodUse {
  readonly period: number;
  readonly used: number;
}

/** The use of a day or month that the store has of a scope, but for the calls of a day. */
export function periodUsesOf(quotas: SettledQuotas): Stocks<PeriodUse> {
  const { dayNumber, monthNumber } = quotas;
  return {
    tokens_per_day: { period: dayNumber, used: quotas.tokensPerDay },
    spend_per_day: { period: dayNumber, used: quotas.spendPerDay },
    calls_per_month: { period: monthNumber, used: quotas.callsPerMonth },
    tokens_per_month: { period: monthNumber, used: quotas.tokensPerMonth },
    spend_per_month: { period: monthNumber, used: quotas.spendPerMonth },
  };
}

/** The same stocks, each with what `map` makes of its value. */
export function mapStocks<From, To>(
  stocks: Stocks<From>,
  map: (value: From, name: StockName) => To,
): Stocks<To> {
  return Object.fromEntries(entriesOf(stocks).map(([name, value]) => [name, map(value, name)]));
}

/** Some permits of an earlier grant. They may have expired since. */
export interface GrantedPermits {
  /** The tick of that grant: see MinuteGrant. */
  readonly tick: number;
  readonly count: number;
}

/**
 * The order of a node's asks for one scope's minute. The node did not get, and will not use, a grant to an
 * ask after `heardNumber`. This ask repeats what those asks returned or named as used.
 */
interface AskOrder {
  /** Grows from ask to ask. */
  readonly number: number;
  /** At least the number of the last ask whose reply came. */
  readonly heardNumber: number;
}

/** How much more is wanted: between `least` and `most`, or nothing. Both are 0 if the ask only reports. */
export interface Wanted<Amount> {
  readonly least: Amount;
  readonly most: Amount;
}

export interface MinuteAsk extends Wanted<number> {
  /** The limit in force at the node that asks. */
  readonly limit: number;
  /** How long the permits should be valid; the coordinator decides. */
  readonly forMs: number;
  /** For a fallback quota, which is hardly ever used: valid for long, however busy the account is. */
  readonly isFallback?: boolean;
  /** Permits that were not used and will not be. */
  readonly returned: readonly GrantedPermits[];
  /**
   * Permits of grants that are still valid, taken before this ask left, and so used within TAKE_MS_MAX from
   * then. They weigh for a minute from then on, and not from their expiry on.
   */
  readonly used?: readonly GrantedPermits[];
  /** Without it, a grant in a lost reply weighs as if it had been used. */
  readonly order?: AskOrder;
}

/** What all processes of a host have charged an account, by the host's store. */
export interface HostSpent {
  readonly totalPicoUnits: PicoUnits;
  /** Grows with each change of the total. A reversal makes the total smaller, so the newest counts. */
  readonly version: number;
}

/** Amounts are calls, tokens, multiples of SPEND_UNIT or, for the balance, pico-units. */
export interface StockAsk extends Wanted<bigint> {
  /** The limit in force at the node that asks. Of the balance it is 0: what was credited counts. */
  readonly limit: bigint;
  /**
   * The number of the day or month of the counts, by the node's calendar; 0 for stocks without a period. The
   * latest that anybody has named counts, unless by the coordinator's calendar it is a mistake of a clock
   * (PERIODS_AHEAD_MAX in ledger/stocks.ts). What was counted in such a period counts in the right one.
   */
  readonly period: number;
  /**
   * What this life has used in the period, less what was taken back. Of a `window`: since it began, so that a
   * message that comes twice does no harm. Of `flight` and `balance`: 0.
   */
  readonly used: bigint;
  /**
   * What this node was granted and has not used; what calls hold is in it. Of the balance: what no store has
   * as spent. It is read before what the host has spent, so that a charge which is flushed in between is
   * counted twice for a moment, never not at all (test/unit/sharing/spent-order.test.ts).
   */
  readonly unused: bigint;
  /** Of the balance, for a coordinator that does not read the host's store itself. */
  readonly spent?: HostSpent;
}

/** What one node reports and wants of one scope. A resource that is left out is neither read nor answered. */
export interface LeaseAsk {
  /** The id of an account, a key or a group, or the name of an upstream. */
  readonly scope: string;
  readonly minute?: MinuteAsk;
  readonly stocks?: Stocks<StockAsk>;
}

interface Grant<Amount> {
  /** Between `least` and `most`, or nothing. */
  readonly granted: Amount;
  /** What the coordinator could still grant to anybody, after this grant. */
  readonly remaining: Amount;
  /**
   * Other nodes hold some that they may give back, so a request may wait for it: unexpired permits, or a
   * stock that they have not used. True if that is not known.
   */
  readonly heldByOthers: boolean;
}

export interface MinuteGrant extends Grant<number> {
  /** The permits are valid to the end of this tick; `GrantedPermits` names it. */
  readonly tick: number;
  /** How long the permits are valid from the grant on; the node counts from when it sent the ask. */
  readonly validMs: number;
  /** When a permit will be free if nobody gives one back; 0 if one remains now. */
  readonly freeInMs: number;
}

export interface StockGrant extends Grant<bigint> {
  /**
   * The period of the grant: that of the ask, or a later one that another node has named. An earlier one: the
   * ask's was a mistake of a clock, and the coordinator has recorded nothing of it. Then it has a record of
   * all that this node took, and may have granted to others what the node has left.
   */
  readonly period: number;
  /** Of a `window`: when `least` will be free if nobody gives any back; 0 if it is now or is not known. */
  readonly freeInMs: number;
}

/** One of each resource that was asked for. */
export interface LeaseReply {
  readonly minute?: MinuteGrant;
  readonly stocks?: Stocks<StockGrant>;
  /**
   * Something that was wanted is not here, and the coordinator, which would know, cannot be asked, or its
   * record of the scope is damaged.
   */
  readonly isUnknown?: boolean;
}

export interface ExchangeReply {
  /** The coordinator's calendar when it answered. */
  readonly wallMs: WallMs;
  /** In the order of the asks. */
  readonly answers: readonly LeaseReply[];
  /** The node replied to itself because it is cut off; what it gives back now reaches nobody. */
  readonly isAlone?: true;
}

export type JoinReply = Pick<ExchangeReply, 'wallMs'>;

/** What all nodes together have of a stock, as far as they have reported. */
export interface StockView {
  readonly period: number;
  /** What nodes have reported as used. Of a `window`: what weighs now. */
  readonly used: bigint;
  /** Granted and not reported as used; also to lives that have ended: nobody knows what they used of it. */
  readonly unused: bigint;
}

/** What is on record of the minute: of all nodes, or of one. */
export interface MinuteView {
  /** Permits that weigh now, whether they were used or not. */
  readonly weighing: number;
  /** Those of them that may still be used. */
  readonly unexpired: number;
}

/** What is on record of one process of the host that looks, which itself knows what it has used since. */
export interface ProcessView {
  readonly slot: number;
  /** `number`: of the process's last ask for the minute; 0 if there was none. */
  readonly minute: MinuteView & { readonly number: number };
  /** `StockAsk.used` of the last ask, of counted stocks that it has used or holds in the view's period. */
  readonly used: Stocks<bigint>;
}

/** What all nodes together use of a scope, for an operator. */
export interface ScopeView {
  readonly scope: string;
  readonly minute: MinuteView;
  /** Those that were ever asked for. */
  readonly stocks: Stocks<StockView>;
  /** Those of the processes that were named which have asked for anything. */
  readonly processes: readonly ProcessView[];
  /** Spent by all hosts: by this one as its store says, by the others as far as they have reported. */
  readonly spent: PicoUnits;
}

/** Why a coordinator could not be asked. */
export type LossReason =
  /** No connection, or it broke. */
  | 'unreachable'
  /** No reply in time; the exchange may have been carried out or not. */
  | 'deadline'
  /** It replied that it cannot: full, read-only, wrong password. */
  | 'failing'
  /** It has lost its data, and waits until nobody can exceed a limit. */
  | 'quarantine'
  /** It may have lost data, and finds out. */
  | 'checking'
  /** It does not know this life of the node, or no longer: join again. */
  | 'unknown_node'
  /** `close` was called. */
  | 'closed';

/** The coordinator was lost: nothing was granted; what was reported may have been recorded or not. */
export class CoordinatorLost extends Error {
  readonly code = 'authority_lost';
  readonly reason: LossReason;

  /** How long nothing will be granted, as far as that is known. */
  readonly waitMs: number | undefined;

  constructor(reason: LossReason, message: string, options?: ErrorOptions & { readonly waitMs?: number }) {
    super(message, options);
    this.name = 'CoordinatorLost';
    this.reason = reason;
    this.waitMs = options?.waitMs;
  }
}

/** What names a node at its coordinator whatever its life; the store of a host remembers it too. */
export function placeOf({ host, slot }: Pick<NodeIdentity, 'host' | 'slot'>): string {
  return `${host}:${slot}`;
}

/** The scope of an account's rule for a model. No id of an account has a slash. */
export function modelScope(accountId: string, modelId: string): string {
  return `${accountId}/${modelId}`;
}

/** For an exchange of a life that the coordinator does not know, or no longer. */
export function unknownNode(): CoordinatorLost {
  return new CoordinatorLost('unknown_node', 'this life of the node is not known');
}

/** What a node calls. Every wait ends within some seconds, by a CoordinatorLost at the latest. */
export interface Coordinator {
  /** Set by who leases through it; called when it may be had again after a loss: then nothing waits on. */
  onBack?: () => void;
  /**
   * Makes this life of the node known and ends earlier lives at the same place; StockKind says what becomes
   * of what they held. Their permits expire. Call it before the first exchange, and again after
   * `unknown_node`. One round trip. Rejects with CoordinatorLost.
   */
  join(): Promise<JoinReply>;
  /**
   * Carries at most EXCHANGE_ASKS_MAX asks, each of another scope; an empty one is a sign of life. Each ask
   * is carried out by itself, and its resources are independent of each other. Wait for the end of the last
   * exchange before the next. One round trip.
   *
   * Rejects with CoordinatorLost; then it may have been carried out or not. The next ask reports what is held
   * anyway; it may return the same permits again only if it has an `order`.
   */
  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply>;
  /**
   * Views in the order of `scopes`, at most EXCHANGE_ASKS_MAX; all is 0 for an unknown scope, and one whose
   * record is damaged is left out. `slots`: the processes of this host that are to be told apart. May be
   * called during an exchange. Rejects with CoordinatorLost.
   */
  look(scopes: readonly string[], slots?: readonly number[]): Promise<ScopeView[]>;
  /** Ends the node and this life. Rejects with CoordinatorLost. */
  leave(): Promise<void>;
  /** Closes connections and files, and sends nothing. Pending calls reject with CoordinatorLost. */
  close(): Promise<void>;
}
