/**
 * Holds what this process leases of one scope: a MinuteLease, and a StockLease for each stock that was
 * needed. lease-manager.ts makes a LeasedScope, sends the asks of all scopes in one exchange, and hands the
 * replies back. lease-waits.ts calls `lacksOf` to learn what a waiting request lacks, `allot` when it lets
 * one try, and `reject` when it ends one. gateway/lease-scopes.ts makes the addresses. Main thread. All times
 * are of the monotonic clock.
 *
 * Must hold: a reply is applied to the ask that was sent, and only once: LeaseManager makes one exchange at a
 * time, and gets no reply of an exchange that was lost. A scope is forgotten only if nothing of it is held or
 * sent and no request waits (test/unit/sharing/lease-manager.test.ts, lease-laws.test.ts). A scope in use
 * keeps what its calls need, so that they do not wait for the coordinator, whichever quotas it has.
 */
import type { LeaseEnd, LeaseNeed, LeaseScope } from '../channel/lease-channel.js';
import { QUOTA_FIELDS, QUOTA_KINDS, type QuotaLimits } from '../core/quotas.js';
import type { MoneyWords, StockWords } from '../ledger/leased-stocks.js';
import type { CountedLeases } from '../ledger/leases.js';
import type { RefusedQuota } from '../ledger/quota-rejections.js';
import {
  type CountedName,
  entriesOf,
  type LeaseAsk,
  type LeaseReply,
  type PeriodOf,
  SPEND_UNIT,
  STOCK_NAMES,
  type StockAsk,
  type StockName,
} from './coordinator.js';
import type { Lack } from './denials.js';
import { MinuteLease } from './minute-lease.js';
import type { CallsUse } from './sharing-stats.js';
import { MoneyLease } from './money-lease.js';
import { SlotLease } from './slot-lease.js';
import { CountedLease, type StockLease } from './stock-leases.js';

/** For so long after a rejection similar requests are rejected without an ask: at most 4 asks a second. */
const REJECTING_MS = 250;
/** If nothing of a scope was used for so long, one ask gives back all that is leased of the scope. */
const RESTING_MS = 2_000;

/** A quota of which a waiting request lacks something. */
export interface QuotaLack {
  readonly scope: LeasedScope;
  readonly quota: RefusedQuota['quota'];
  readonly lack: Lack;
}

/** A scope, and where its leases lie in shared memory. */
export interface ScopeAddress extends LeaseScope {
  /** The name by which the coordinator knows the scope. */
  readonly scopeId: string;
  readonly minute: CountedLeases<number>;
  /** The stock's lease; undefined if the scope has no such stock. */
  readonly wordsOf: (name: CountedName) => StockWords | undefined;
  /** The lease of the balance; undefined if the scope is no account. */
  readonly money?: MoneyWords | undefined;
  /** The limits in force now. 0 or undefined means no limit. */
  readonly limits: () => Partial<QuotaLimits>;
}

export interface Wait {
  readonly need: LeaseNeed;
  readonly sinceMs: number;
  readonly scopes: readonly LeasedScope[];
  /** When the wait ends. LeaseWaits puts it off once, if the coordinator has not replied by then. */
  deadlineMs: number;
  /** Whether the deadline was put off: at the second one the wait ends, with or without the reply. */
  isOverdue: boolean;
  /** Ends the wait. Only LeaseWaits calls it, once. */
  readonly end: (end: LeaseEnd) => void;
}

/** The exchange that carries the asks of LeasedScopes. */
export interface NextExchange {
  readonly nowMs: number;
  readonly periodOf: PeriodOf;
  /** Whether asks repeat what the coordinator has on record, because it may have lost that. */
  readonly reportsAll: boolean;
  /** Grows from exchange to exchange: see AskOrder (coordinator.ts). */
  readonly number: number;
}

/**
 * How much of what is leased is not yet allotted to a wait in this round (LeaseWaits). It is needed because
 * shared memory changes only when the requests try again: by it alone all waits would be allotted the same.
 */
interface Budget {
  round: number;
  minute: number;
  readonly stocks: Map<StockName, bigint>;
}

export class LeasedScope {
  readonly address: ScopeAddress;
  /** The requests that wait for this scope, among others. LeaseWaits alone adds and removes them. */
  readonly waits = new Set<Wait>();
  /** Whether a listener or worker has used most of what is leased, since the last ask. */
  #isLow = false;
  #isUnknown = false;
  readonly minute: MinuteLease;
  /** The leases of the stocks that have been needed. None is removed: the whole scope is forgotten. */
  readonly #stocks = new Map<StockName, StockLease>();
  /** Those of `#stocks` that lease-manager.ts does more with. */
  #slots: SlotLease | undefined;
  #money: MoneyLease | undefined;
  readonly #budget: Budget = { round: -1, minute: 0, stocks: new Map() };
  /** The last ask, until its reply is applied; undefined if nothing was asked since. */
  #sent: LeaseAsk | undefined;

  constructor(address: ScopeAddress, nowMs: number) {
    this.address = address;
    this.minute = new MinuteLease(address.minute, address.index, nowMs);
  }

  /**
   * Whether more may be there than was granted: LeaseReply.isUnknown of the last reply, or call slots are
   * withheld. Then LeaseWaits ends a request as if the coordinator were lost, not as one beyond its quota.
   */
  get isUnknown(): boolean {
    return this.#isUnknown;
  }

  /** Called when a listener or worker has used most of what is leased: the next ask wants more. */
  recordLow(): void {
    this.#isLow = true;
  }

  /**
   * The ask for the next exchange; undefined if there is nothing to ask or report. The caller sends the ask
   * and calls `applyReply` with the reply. If no reply comes, the next ask replaces this one.
   */
  ask(exchange: NextExchange): LeaseAsk | undefined {
    const { nowMs, number } = exchange;
    const { scopeId } = this.address;
    const limits = this.address.limits();
    const isLow = this.#isLow;
    this.#isLow = false;
    const { requestsPerMinute = 0 } = limits;
    const needs = [...this.waits].map(({ need }) => need);
    const waiting = needs.filter((need) => this.#takesPermit(need)).length;
    const minute =
      requestsPerMinute === 0
        ? undefined
        : this.minute.ask({ waiting, limit: requestsPerMinute, isLow, nowMs, number });
    const asks = STOCK_NAMES.flatMap((name): [StockName, StockAsk][] => {
      const ask = this.#askStock(name, limitOf(limits, name), needs, isLow, exchange);
      return ask === undefined ? [] : [[name, ask]];
    });
    // Replaces the ask before if its exchange was lost. While `#sent` is set, the scope is not forgotten.
    this.#sent =
      minute === undefined && asks.length === 0
        ? undefined
        : {
            scope: scopeId,
            ...(minute && { minute }),
            ...(asks.length > 0 && { stocks: Object.fromEntries(asks) }),
          };
    return this.#sent;
  }

  #askStock(
    name: StockName,
    limit: bigint | undefined,
    waitingNeeds: readonly LeaseNeed[],
    isLow: boolean,
    { nowMs, periodOf, reportsAll: all }: NextExchange,
  ): StockAsk | undefined {
    if (limit !== undefined) {
      const needs = waitingNeeds.map((need) => amountOf(name, need)).filter((amount) => amount > 0n);
      return this.#openStock(name, nowMs)?.ask({ needs, low: isLow, all }, limit, periodOf(name), nowMs);
    }
    // A lease without a limit is one whose limit was removed: all of it goes back.
    const lease = this.#stocks.get(name);
    lease?.giveBack();
    return lease?.ask({ all }, 0n, periodOf(name), nowMs);
  }

  /** Applies the reply to the last ask, which was sent at `sentMs`. Drops a reply if no ask waits for one. */
  applyReply({ minute, stocks = {}, isUnknown = false }: LeaseReply, sentMs: number, nowMs: number): void {
    const sent = this.#sent;
    if (sent === undefined) return;
    this.#isUnknown = isUnknown || this.#slots?.isWithheld === true;
    if (minute && sent.minute) this.minute.applyGrant(minute, sentMs, nowMs);
    for (const [name] of entriesOf(sent.stocks ?? {})) {
      const grant = stocks[name];
      if (grant !== undefined) this.#stocks.get(name)?.applyGrant(grant, sentMs, nowMs);
    }
    this.#sent = undefined;
  }

  /**
   * Returns what the request lacks of this scope, if what was allotted in this round is not there. `round`:
   * each new number makes a new budget of what is leased then.
   */
  lacksOf({ need, sinceMs }: Wait, round: number, periodOf: PeriodOf, nowMs: number): QuotaLack[] {
    const limits = this.address.limits();
    const budget = this.#budgetOf(round, periodOf, nowMs);
    const lacks: QuotaLack[] = [];
    if (this.#takesLimitedPermit(need) && budget.minute < 1) {
      const lack = this.minute.lackOf(limits.requestsPerMinute ?? 0, sinceMs, nowMs);
      lacks.push({ scope: this, quota: 'requests_per_minute', lack });
    }
    for (const { name, amount, limit } of this.#needsOf(need)) {
      const unallotted = budget.stocks.get(name) ?? 0n;
      if (unallotted >= amount) continue;
      const lease = this.#stocks.get(name);
      const available = lease?.availableIn(periodOf(name)) ?? 0n;
      // For example, 5 are available, of which others were allotted 3, and this request needs 4: so 7 in all
      // are needed here.
      const needed = amount + available - unallotted;
      lacks.push({
        scope: this,
        quota: name,
        lack: lease?.lackOf(needed, limit, sinceMs, nowMs) ?? 'unasked',
      });
    }
    return lacks;
  }

  /**
   * Allots to the request what it needs of this scope. Must be called only if the request lacks nothing of
   * any scope (`lacksOf`, in this round). If it went on to wait, others would lack what it was allotted, and
   * so would the request itself, when `lacksOf` is called for it again in the same round.
   */
  allot({ need }: Wait): void {
    const budget = this.#budget;
    if (this.#takesLimitedPermit(need)) budget.minute -= 1;
    // The `!` is safe: the request lacks nothing, so the budget has enough of the stock.
    for (const { name, amount } of this.#needsOf(need))
      budget.stocks.set(name, budget.stocks.get(name)! - amount);
  }

  /** What the request takes of each limited stock of the scope, in the unit of StockAsk. */
  #needsOf(need: LeaseNeed): { name: StockName; amount: bigint; limit: bigint }[] {
    if (need.kind === 'minute') return [];
    const limits = this.address.limits();
    return STOCK_NAMES.flatMap((name) => {
      const amount = amountOf(name, need);
      const limit = limitOf(limits, name);
      if (amount === 0n || limit === undefined) return [];
      return this.#hasStock(name) ? [{ name, amount, limit }] : [];
    });
  }

  #takesLimitedPermit(need: LeaseNeed): boolean {
    return this.#takesPermit(need) && (this.address.limits().requestsPerMinute ?? 0) > 0;
  }

  /** Admission takes a permit of rules for models alone: the rate-limit phase took the others. */
  #takesPermit({ kind }: LeaseNeed): boolean {
    return kind !== 'admission' || this.address.kind === 'model';
  }

  /**
   * Called when a request is rejected by this quota: similar requests are rejected for REJECTING_MS. Of a
   * stock all that is available is given back, as it was too little.
   */
  reject(quota: QuotaLack['quota'], nowMs: number): void {
    const lease = quota === 'requests_per_minute' ? this.minute : this.#stocks.get(quota);
    lease?.reject(nowMs, REJECTING_MS);
  }

  /**
   * Gives back what lies idle. Returns whether the scope should be in the next exchange. LeaseManager calls
   * it every SWEEP_MS. `isAlone`: the process is cut off from the coordinator, so that what it gives back
   * reaches no node. Then it gives back only permits, which expire anyway.
   */
  sweep(nowMs: number, { isAlone }: { readonly isAlone: boolean }): boolean {
    let isDue = this.minute.sweep(nowMs);
    if (isAlone) return isDue;
    const slotLimit = limitOf(this.address.limits(), 'calls_in_flight');
    if (slotLimit !== undefined) this.#slots?.followLimit(slotLimit);
    for (const stock of this.#stocks.values()) isDue = stock.sweep(nowMs) || isDue;
    if (isDue && this.waits.size === 0 && this.#isResting(nowMs)) this.giveBackAll(nowMs);
    return isDue;
  }

  /** All resources are looked at, because a scope may have no limit of some: these are never used. */
  #isResting(nowMs: number): boolean {
    if (this.minute.idleMs(nowMs) < RESTING_MS) return false;
    for (const stock of this.#stocks.values()) if (stock.idleMs(nowMs) < RESTING_MS) return false;
    return true;
  }

  /** The lease of call slots; undefined if none was needed. */
  get slots(): SlotLease | undefined {
    return this.#slots;
  }

  /** As `slots`, of the tokens of the minute. */
  get minuteTokens(): StockLease | undefined {
    return this.#stocks.get('tokens_per_minute');
  }

  /** As `slots`, of the account's money. */
  get money(): MoneyLease | undefined {
    return this.#money;
  }

  /** As `money`, but makes the lease if there is none; undefined if the scope is no account. */
  openMoney(nowMs: number): MoneyLease | undefined {
    this.#openStock('balance', nowMs);
    return this.#money;
  }

  /** Gives back all that is unused, with the next ask, which wants nothing unless requests wait. */
  giveBackAll(nowMs: number): void {
    this.#isLow = false;
    this.minute.giveBack(nowMs);
    for (const stock of this.#stocks.values()) stock.giveBack();
  }

  /** Whether the scope can be forgotten: nothing is held, sent or to be reported, and no request waits. */
  get isEmpty(): boolean {
    if (this.waits.size > 0 || this.#sent !== undefined || !this.minute.isEmpty) return false;
    for (const stock of this.#stocks.values()) if (!stock.isEmpty) return false;
    return true;
  }

  #hasStock(name: StockName): boolean {
    const { money, wordsOf } = this.address;
    return this.#stocks.has(name) || (name === 'balance' ? money : wordsOf(name)) !== undefined;
  }

  /** The stock's lease, which is made if there is none; undefined if the scope has no such stock. */
  #openStock(name: StockName, nowMs: number): StockLease | undefined {
    const open = this.#stocks.get(name) ?? this.#makeLease(name, nowMs);
    if (open !== undefined) this.#stocks.set(name, open);
    return open;
  }

  #makeLease(name: StockName, nowMs: number): StockLease | undefined {
    const { money, wordsOf } = this.address;
    if (name === 'balance') return (this.#money = money && new MoneyLease(money, nowMs));
    const words = wordsOf(name);
    if (words === undefined) return undefined;
    if (name === 'calls_in_flight') return (this.#slots = new SlotLease(words, nowMs));
    return new CountedLease(name, words, nowMs);
  }

  #budgetOf(round: number, periodOf: PeriodOf, nowMs: number): Budget {
    const budget = this.#budget;
    if (budget.round === round) return budget;
    budget.round = round;
    budget.minute = this.minute.left(nowMs);
    for (const stock of this.#stocks.values())
      budget.stocks.set(stock.name, stock.availableIn(periodOf(stock.name)));
    return budget;
  }
}

/** The limit in the unit of StockAsk; undefined if there is none, and nothing is leased. 0 for a balance. */
function limitOf(limits: Partial<QuotaLimits>, name: StockName): bigint | undefined {
  if (name === 'balance') return 0n;
  const limit = limits[QUOTA_FIELDS[name]];
  if (!limit) return undefined;
  return typeof limit === 'bigint' ? limit / SPEND_UNIT : BigInt(limit);
}

/**
 * How much of the stock must be leased for the request, in the unit of StockAsk; 0 if it takes none. A call
 * that holds no tokens or no money is admitted while anything is left (`Stocks.take`), so it needs 1.
 */
function amountOf(name: StockName, need: LeaseNeed): bigint {
  const { hold = 0n, tokens = 0 } = need.kind === 'minute' ? {} : need;
  if (name === 'balance') return hold;
  if (need.kind === 'admission' && need.isFree === true) return name === 'calls_in_flight' ? 1n : 0n;
  switch (QUOTA_KINDS[name].unit) {
    case 'calls':
      return 1n;
    case 'tokens':
      return BigInt(Math.max(1, tokens));
    case 'money':
      return hold === 0n ? 1n : (hold + SPEND_UNIT - 1n) / SPEND_UNIT;
  }
}

/** The scope's stocks as shared memory has them, leased or not. For lease-manager.ts. */
export function stocksIn({ money, wordsOf }: ScopeAddress): CallsUse['stocks'] {
  const stocks = STOCK_NAMES.flatMap((name) => {
    const stock = (name === 'balance' ? money : wordsOf(name))?.read();
    return stock === undefined ? [] : [[name, stock] as const];
  });
  return Object.fromEntries(stocks);
}
