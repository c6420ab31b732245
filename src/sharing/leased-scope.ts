/**
 * What this process leases of one scope, and the requests that wait for it: a MinuteLease, and a StockLease
 * for each stock that was needed. lease-manager.ts makes it, sends the asks of all scopes in one exchange and
 * hands the replies back; lease-waits.ts asks what a request lacks. gateway/lease-scopes.ts makes the
 * addresses. Main thread. All times are of the monotonic clock.
 *
 * Must hold: a reply is applied to the ask that was sent, and only once. A scope is forgotten only if nothing
 * is held of it and no request waits. Tests: test/unit/sharing/lease-manager.test.ts, lease-laws.test.ts.
 */
import type { LeaseEnd, LeaseNeed, LeaseScope } from '../channel/lease-channel.js';
import { QUOTA_FIELDS, QUOTA_KINDS, type QuotaLimits } from '../core/quotas.js';
import type { LeaseWords } from '../ledger/leased-stocks.js';
import type { CountedLeases } from '../ledger/leases.js';
import {
  entriesOf,
  type LeaseAsk,
  type LeaseReply,
  type PeriodOf,
  SPEND_UNIT,
  STOCK_NAMES,
  type StockAsk,
  type StockName,
} from './coordinator.js';
import type { Denial } from './lease-terms.js';
import { MinuteLease } from './minute-lease.js';
import type { CallsUse } from './sharing-stats.js';
import { StockLease } from './stock-leases.js';

/** After a denial, requests are rejected for so long without an ask: a busy client costs 4 asks a second. */
const DENIED_MS = 250;
/** A scope whose minute was idle for so long counts as resting. */
const RESTING_MS = 2_000;

/**
 * What a waiting request still lacks of a scope. Of several, the later in this list decides: a request is
 * rejected only after all that it lacks was asked for. Otherwise the listener could name a quota with room.
 */
const LACKS = [
  'nothing',
  /** The coordinator has too little left, but others may give some back. */
  'denied',
  /** As `denied`, but nobody is known to hold some that could be given back. */
  'refused',
  /** The coordinator has to be asked. */
  'unasked',
] as const;
export type Lack = (typeof LACKS)[number];

/** Returns the one that comes later in LACKS. lease-waits.ts calls it for several scopes. */
export function worse(one: Lack, other: Lack): Lack {
  return LACKS.indexOf(one) > LACKS.indexOf(other) ? one : other;
}

/** A scope, and where its leases lie in shared memory. */
export interface ScopeAddress extends LeaseScope {
  /** The name by which the coordinator knows the scope. */
  readonly scope: string;
  readonly minute: CountedLeases<number>;
  /** The scope's index in `minute`. */
  readonly minuteIndex: number;
  /** Undefined if there is no such stock. Stocks but the balance are leased if `limits` has their limit. */
  readonly wordsOf: (name: StockName) => LeaseWords | undefined;
  /** The limits in force now. 0 or undefined means no limit. */
  readonly limits: () => Partial<QuotaLimits>;
}

/** A request that waits for a lease. */
export interface Wait {
  readonly need: LeaseNeed;
  readonly sinceMs: number;
  /** All scopes from which the request takes. */
  readonly scopes: readonly LeasedScope[];
  /** Then it is rejected, whatever others may give back. If nothing was denied, it waits for a reply. */
  deadlineMs: number;
  /** The first deadline is over: at the next one the wait ends, with or without the reply. */
  isOverdue: boolean;
  readonly end: (end: LeaseEnd) => void;
}

/** When and how the asks of an exchange are made. */
export interface Asking {
  readonly nowMs: number;
  readonly periodOf: PeriodOf;
  /** Report also what the coordinator has on record, because it may have lost that. */
  readonly all: boolean;
  /** The number of the exchange: each is larger than the last. */
  readonly number: number;
}

/**
 * What may still be promised to waits in a round. Without it all waits would be promised the same amount,
 * because shared memory changes only when the requests try again. lease-waits.ts numbers the rounds.
 */
interface Budget {
  round: number;
  minute: number;
  readonly stocks: Map<StockName, bigint>;
}

export class LeasedScope {
  readonly address: ScopeAddress;
  readonly waits = new Set<Wait>();
  /** A listener has used most of what is leased; `ask` sets it to false again. */
  low = false;
  /** What was last wanted was not granted, and the coordinator could not be asked. */
  isUnknown = false;
  readonly minute: MinuteLease<number>;
  /** Leases of the stocks that have been needed. */
  readonly #stocks = new Map<StockName, StockLease>();
  readonly #budget: Budget = { round: -1, minute: 0, stocks: new Map() };
  /** The last ask, until its reply was taken. */
  #sent: LeaseAsk | undefined;

  constructor(address: ScopeAddress, nowMs: number) {
    this.address = address;
    this.minute = new MinuteLease(address.minute, address.minuteIndex, nowMs);
  }

  /**
   * The ask for the next exchange; undefined if there is nothing to ask or report. `take` gets the reply; if
   * none comes, the next ask replaces this one.
   */
  ask(asking: Asking): LeaseAsk | undefined {
    const { nowMs, number } = asking;
    const { scope } = this.address;
    const limits = this.address.limits();
    const { low } = this;
    this.low = false;
    const { requestsPerMinute = 0 } = limits;
    const needs = [...this.waits].map(({ need }) => need);
    const permits = needs.filter((need) => this.#takesPermit(need)).length;
    const minute =
      requestsPerMinute === 0 ? undefined : this.minute.ask(permits, requestsPerMinute, low, nowMs, number);
    const asks = STOCK_NAMES.flatMap((name): [StockName, StockAsk][] => {
      const ask = this.#askStock(name, limitOf(limits, name), needs, low, asking);
      return ask === undefined ? [] : [[name, ask]];
    });
    // Replaces the ask before if its exchange was lost. While `#sent` is set, the scope is not forgotten.
    this.#sent =
      minute === undefined && asks.length === 0
        ? undefined
        : { scope, ...(minute && { minute }), ...(asks.length > 0 && { stocks: Object.fromEntries(asks) }) };
    return this.#sent;
  }

  #askStock(
    name: StockName,
    limit: bigint | undefined,
    needs: readonly LeaseNeed[],
    low: boolean,
    { nowMs, periodOf, all }: Asking,
  ): StockAsk | undefined {
    if (limit !== undefined) {
      const amounts = needs.map((need) => needOf(name, need)).filter((amount) => amount > 0n);
      return this.openStock(name, nowMs)?.ask({ needs: amounts, low, all }, limit, periodOf(name), nowMs);
    }
    // If there is a lease, its limit was removed.
    const lease = this.#stocks.get(name);
    lease?.giveBack();
    return lease?.ask({ all }, 0n, periodOf(name), nowMs);
  }

  /** Applies the reply to the last ask, which was sent at `sentMs`. */
  take({ minute, stocks = {}, isUnknown = false }: LeaseReply, sentMs: number, nowMs: number): void {
    const sent = this.#sent;
    if (sent === undefined) return;
    this.isUnknown = isUnknown || this.#stocks.get('calls_in_flight')?.isWithheld === true;
    if (minute && sent.minute) this.minute.take(minute, sent.minute, sentMs, nowMs);
    for (const [name, ask] of entriesOf(sent.stocks ?? {})) {
      const grant = stocks[name];
      if (grant !== undefined) this.#stocks.get(name)?.take(grant, ask, sentMs, nowMs);
    }
    this.#sent = undefined;
  }

  /** Promises the wait all that it needs here and returns 'nothing'; else returns what it lacks. */
  promise({ need, sinceMs }: Wait, round: number, periodOf: PeriodOf, nowMs: number): Lack {
    const limits = this.address.limits();
    const budget = this.#budgetOf(round, periodOf, nowMs);
    const takesPermit = this.#takesPermit(need) && (limits.requestsPerMinute ?? 0) > 0;
    let lack: Lack = 'nothing';
    if (takesPermit && budget.minute < 1) {
      const isAsked = this.minute.deniedLimit === limits.requestsPerMinute;
      lack = isAsked ? lackOf(this.minute, sinceMs, nowMs) : 'unasked';
    }
    const needs: [StockName, bigint][] = [];
    if (need.kind !== 'minute') {
      for (const name of STOCK_NAMES) {
        const amount = needOf(name, need);
        const limit = limitOf(limits, name);
        if (amount === 0n || limit === undefined) continue;
        if (this.#stocks.get(name) === undefined && this.address.wordsOf(name) === undefined) continue;
        needs.push([name, amount]);
        const left = budget.stocks.get(name) ?? 0n;
        const lease = this.#stocks.get(name);
        if (left >= amount) continue;
        // A denial of a larger amount, or under another limit, says nothing of this need.
        const isAsked =
          lease?.deniedLimit === limit && amount + lease.left(periodOf(name)) - left >= lease.denied;
        lack = worse(lack, isAsked ? lackOf(lease, sinceMs, nowMs) : 'unasked');
      }
    }
    if (lack !== 'nothing') return lack;
    // Nothing lacks, so the budget has the amount of each stock in `needs`.
    if (takesPermit) budget.minute -= 1;
    for (const [name, amount] of needs) budget.stocks.set(name, budget.stocks.get(name)! - amount);
    return 'nothing';
  }

  /** Admission takes the permit of a rule for a model, because the rate-limit phase knows no model. */
  #takesPermit({ kind }: LeaseNeed): boolean {
    return kind !== 'admission' || this.address.kind === 'model';
  }

  /** Rejects similar requests for DENIED_MS, and gives back what is unused of stocks that were denied. */
  reject(need: LeaseNeed, nowMs: number): void {
    const untilMs = nowMs + DENIED_MS;
    if (this.#takesPermit(need) && this.minute.denial !== undefined) this.minute.reject(untilMs);
    if (need.kind === 'minute') return;
    for (const stock of this.#stocks.values()) {
      if (stock.denial === undefined) continue;
      stock.deniedUntilMs = untilMs;
      stock.giveBack();
    }
  }

  /**
   * Gives back what lies idle; returns true if the coordinator should hear of that now. `isAlone`: the
   * process is cut off, so it gives back only permits, which expire anyway.
   */
  look(nowMs: number, isAlone: boolean): boolean {
    let isDue = this.minute.look(nowMs);
    if (isAlone) return isDue;
    const slots = this.#stocks.get('calls_in_flight');
    const limit = slots && limitOf(this.address.limits(), slots.name);
    if (limit !== undefined) slots?.follow(limit);
    for (const stock of this.#stocks.values()) isDue = stock.look(nowMs) || isDue;
    // When a scope has come to rest, one ask says so for all its resources.
    if (isDue && this.waits.size === 0 && this.minute.idleMs(nowMs) >= RESTING_MS) this.giveBackAll(nowMs);
    return isDue;
  }

  /** The lease of that stock; undefined if there is none. */
  stock(name: StockName): StockLease | undefined {
    return this.#stocks.get(name);
  }

  /** Gives back all that is unused, with the next ask. */
  giveBackAll(nowMs: number): void {
    this.minute.giveBack(nowMs);
    for (const stock of this.#stocks.values()) stock.giveBack();
  }

  /** Whether the scope can be forgotten: nothing is held or to be reported, and no request waits. */
  get isEmpty(): boolean {
    if (this.waits.size > 0 || this.#sent !== undefined || !this.minute.isEmpty) return false;
    for (const stock of this.#stocks.values()) if (!stock.isEmpty) return false;
    return true;
  }

  /** As `stock`, but the lease begins here if there is none; undefined if the scope has no such stock. */
  openStock(name: StockName, nowMs: number): StockLease | undefined {
    const known = this.#stocks.get(name);
    if (known !== undefined) return known;
    const words = this.address.wordsOf(name);
    if (words === undefined) return undefined;
    const lease = new StockLease(name, words, nowMs);
    this.#stocks.set(name, lease);
    return lease;
  }

  #budgetOf(round: number, periodOf: PeriodOf, nowMs: number): Budget {
    const budget = this.#budget;
    if (budget.round === round) return budget;
    budget.round = round;
    budget.minute = this.minute.left(nowMs);
    for (const stock of this.#stocks.values())
      budget.stocks.set(stock.name, stock.left(periodOf(stock.name)));
    return budget;
  }
}

/** In the unit of asks; undefined if there is no limit. 0 for the balance, which is always leased. */
function limitOf(limits: Partial<QuotaLimits>, name: StockName): bigint | undefined {
  if (name === 'balance') return 0n;
  const limit = limits[QUOTA_FIELDS[name]];
  if (!limit) return undefined;
  return typeof limit === 'bigint' ? limit / SPEND_UNIT : BigInt(limit);
}

/**
 * How much of the stock must be here for the call, in the unit of asks. A call that holds no tokens, or costs
 * nothing, is admitted while anything is left (`Stocks.take`), so there must be 1. 0: it takes none.
 */
function needOf(name: StockName, need: LeaseNeed): bigint {
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

/** What a request lacks that waits since `sinceMs`. A denial of an ask from before that does not count. */
function lackOf(
  { denial, deniedUntilMs }: { readonly denial: Denial | undefined; readonly deniedUntilMs: number },
  sinceMs: number,
  nowMs: number,
): Lack {
  if (nowMs < deniedUntilMs) return 'refused';
  if (denial === undefined || denial.sentMs < sinceMs) return 'unasked';
  return denial.heldByOthers ? 'denied' : 'refused';
}

/** For lease-manager.ts: the scope's stocks as shared memory has them, leased or not. */
export function stocksIn({ wordsOf }: ScopeAddress): CallsUse['stocks'] {
  const stocks = STOCK_NAMES.flatMap((name) => {
    const held = wordsOf(name)?.read();
    return held === undefined ? [] : [[name, held] as const];
  });
  return Object.fromEntries(stocks);
}
