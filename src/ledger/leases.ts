/**
 * Puts what the coordinator granted to this process into the ledger's shared memory, and takes out what the
 * process gives back: for accounts, keys, groups and rules for models. The lease manager calls it
 * (sharing/minute-lease.ts, sharing/stock-leases.ts, sharing/leased-scope.ts). Main
 * thread.
 *
 * Listeners take from the same words at the same time. So the main thread changes such a word by an atomic
 * operation, and an amount that it has just read as left may be taken the next moment.
 *
 * Must hold: a granted permit or amount is taken by a call, or taken out again, never both. Test:
 * test/threads/leases.test.ts.
 */
import type { Clock } from '../core/clock.js';
import {
  type AccountIndex,
  asPicoUnits,
  type GroupIndex,
  type ModelScopeIndex,
  type KeyIndex,
  type PicoUnits,
} from '../core/units.js';
import { Balance } from './balance.js';
import * as layout from './layout.js';
import type { CountedViews, LedgerBuffers, LedgerViews, Scope } from './layout.js';
import { dayLeases, flightLeases, LeasedStocks, type MoneyWords, type StockWords } from './leased-stocks.js';
import { expiryMsOf, grantOf, PERMITS_MAX, permitsOf } from './leased-window.js';

/** What the lease of a balance asks of gateway/shared-accounting.ts. Main thread. */
export interface SpentAccounting {
  /** What this process has charged the account since its start, as far as flushes have written it. */
  flushedOf(account: AccountIndex): PicoUnits;
  /** As `MoneyWords.collect`. */
  collect(account: AccountIndex, amountMax: PicoUnits): PicoUnits;
}

/** The leases of requests a minute and calls a day, of all scopes of one kind. `scope`: the index of one. */
export class CountedLeases<Index extends number> {
  readonly #words64: BigInt64Array;
  readonly #words32: Int32Array;
  readonly #days: LeasedStocks;

  constructor(views: CountedViews, clock: Clock) {
    this.#words64 = views.records64;
    this.#words32 = views.records32;
    this.#days = new LeasedStocks(views.records64, clock, dayLeases(views.records64));
  }

  /** How many permits calls can take at `nowMs`; 0 after the expiry. All times of grants are monotonic. */
  minuteLeft(scope: Index, nowMs: number): number {
    const grant = Atomics.load(this.#words64, layout.windowAt(scope));
    return nowMs < expiryMsOf(grant) ? permitsOf(grant) : 0;
  }

  /**
   * Adds `permits` that are valid until `expiresMs`. One word has room for one expiry. So the new grant joins
   * the earlier one, and all permits get the earlier of the two expiries. But if the earlier grant is used
   * up, or valid for less than half as long, the new one replaces it; then returns how many permits were left
   * of the earlier one, which the caller gives back. LeasedWindow calls `onLow` when `low` are left.
   */
  addMinute(scope: Index, expiresMs: number, permits: number, low: number, nowMs: number): 'joined' | number {
    const word = layout.windowAt(scope);
    const alone = grantOf(expiresMs, permits);
    Atomics.store(this.#words32, scope * layout.COUNTED_WORDS32 + layout.LOW_MINUTE, low);
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      const grant = Atomics.load(this.#words64, word);
      const permitsLeft = permitsOf(grant);
      const earlierExpiryMs = Math.min(expiryMsOf(grant), expiresMs);
      const isJoined =
        permitsLeft > 0 &&
        permitsLeft + permits <= PERMITS_MAX &&
        (earlierExpiryMs - nowMs) * 2 >= expiresMs - nowMs;
      const next = isJoined ? grantOf(earlierExpiryMs, permitsLeft + permits) : alone;
      if (Atomics.compareExchange(this.#words64, word, grant, next) === grant)
        return isJoined ? 'joined' : permitsLeft;
    }
    throw new Error('invariant broken: a grant is put in place in bounded tries');
  }

  /** Takes the grant out. Returns how many permits were left of it, whether or not it has expired. */
  takeBackMinute(scope: Index): number {
    return permitsOf(Atomics.exchange(this.#words64, layout.windowAt(scope), 0n));
  }

  /** How many permits are left of the grant, whether or not it has expired. */
  minuteUnused(scope: Index): number {
    return permitsOf(Atomics.load(this.#words64, layout.windowAt(scope)));
  }

  /**
   * Stores what the coordinator replied about the minute. `remaining` and `freeMs`, the time at which it has
   * permits again, are for response headers. Until `rejectedUntilMs` listeners reject without an ask, if
   * their limit is `limit`. LeasedWindow reads the four words one by one: a mix of two replies costs one ask
   * or one rejection, and exceeds no limit.
   */
  publishMinute(
    scope: Index,
    remaining: number,
    freeMs: number,
    rejectedUntilMs: number,
    limit: number,
  ): void {
    const first64 = scope * layout.COUNTED_WORDS64;
    Atomics.store(this.#words32, scope * layout.COUNTED_WORDS32 + layout.MINUTE_REJECTED_LIMIT, limit);
    Atomics.store(this.#words32, scope * layout.COUNTED_WORDS32 + layout.MINUTE_REMAINING, remaining);
    Atomics.store(this.#words64, first64 + layout.MINUTE_FREE_MS, BigInt(Math.ceil(freeMs)));
    Atomics.store(
      this.#words64,
      first64 + layout.MINUTE_REJECTED_UNTIL_MS,
      BigInt(Math.floor(rejectedUntilMs)),
    );
  }

  dayOf(scope: Index): StockWords {
    return this.#days.leaseOf(layout.dayAt(scope));
  }
}

/** The leases of all scopes of a ledger. Those of upstreams are UpstreamLeases (upstream-counters.ts). */
export class Leases {
  readonly #views: LedgerViews;
  readonly accounts: CountedLeases<AccountIndex>;
  readonly keys: CountedLeases<KeyIndex>;
  readonly groups: CountedLeases<GroupIndex>;
  readonly models: CountedLeases<ModelScopeIndex>;
  readonly #words64: BigInt64Array;
  /** The stocks of quota records, and accounts' calls in flight. */
  readonly #stocks: LeasedStocks;
  readonly #flights: LeasedStocks;
  readonly #balance: Balance;

  /** `clock` is read for its monotonic time alone. */
  constructor(buffers: LedgerBuffers, clock: Clock) {
    const views = layout.openLedgerViews(buffers);
    this.#views = views;
    this.accounts = new CountedLeases(views.accounts, clock);
    this.keys = new CountedLeases(views.keys, clock);
    this.groups = new CountedLeases(views.groups, clock);
    this.models = new CountedLeases(views.models, clock);
    this.#words64 = views.accounts.records64;
    this.#stocks = new LeasedStocks(views.quotas.words64, clock);
    this.#flights = new LeasedStocks(views.accountExtras64, clock, flightLeases(views.accounts.records64));
    this.#balance = new Balance(views);
  }

  /** The lease of one quota of a scope; undefined if it needs a quota record and the scope has none. */
  stockOf(scope: Scope, quota: layout.ExtendedQuota | 'calls_per_day'): StockWords | undefined {
    const { kind, index } = scope;
    if (quota === 'calls_per_day') {
      // `never` is a cast: the type checker cannot tell that `index` and `leases` are of the same kind.
      const leases: CountedLeases<never> = this[`${kind}s`];
      return leases.dayOf(index as never);
    }
    if (quota === 'calls_in_flight' && kind === 'account')
      return this.#flights.leaseOf(layout.flightAt(index));
    const record = layout.recordOf(this.#views, scope);
    if (record === undefined) return undefined;
    return this.#stocks.leaseOf(layout.stockAt(record, layout.quotaNumberOf(quota)));
  }

  /**
   * The lease of an account's money. A charge counts as held until a flush has written it: then the store
   * tells the coordinator of the charge, and `granted` shrinks by it. `period` and `used` are always 0.
   */
  balanceOf(account: AccountIndex, accounting: SpentAccounting): MoneyWords {
    const first = account * layout.COUNTED_WORDS64;
    return {
      read: () => ({
        period: 0,
        granted: Atomics.load(this.#words64, first + layout.CREDITED) - accounting.flushedOf(account),
        used: 0n,
        available: Atomics.load(this.#words64, first + layout.AVAILABLE),
      }),
      add: (_, amount, low) => this.addMoney(account, asPicoUnits(amount), asPicoUnits(low)),
      takeBack: (amountMax) => this.takeBackMoney(account, asPicoUnits(amountMax)),
      publish: (remaining) => void Atomics.store(this.#words64, first + layout.MONEY_REMAINING, remaining),
      collect: (amountMax) => accounting.collect(account, asPicoUnits(amountMax)),
    };
  }

  /** Adds granted money. LeasedBalance calls `onLow` when a hold leaves less than `low`. */
  addMoney(account: AccountIndex, amount: PicoUnits, low: PicoUnits): void {
    const first = account * layout.COUNTED_WORDS64;
    Atomics.store(this.#words64, first + layout.LOW_MONEY, low);
    Atomics.add(this.#words64, first + layout.CREDITED, amount);
    Atomics.add(this.#words64, first + layout.AVAILABLE, amount);
  }

  /**
   * Takes out the money of a reversed charge, which counted as held, once a flush has removed the charge from
   * the store: from then on the coordinator may grant that money to any process.
   */
  removeReversed(account: AccountIndex, amount: PicoUnits): void {
    Atomics.sub(this.#words64, account * layout.COUNTED_WORDS64 + layout.CREDITED, amount);
  }

  /** Takes out at most `amount` of what is available; returns how much. */
  takeBackMoney(account: AccountIndex, amount: PicoUnits): PicoUnits {
    const nothing = asPicoUnits(0n);
    if (amount <= 0n) return nothing;
    const taken = this.#balance.takeAvailable(account, nothing, amount);
    const first = account * layout.COUNTED_WORDS64;
    Atomics.sub(this.#words64, first + layout.CREDITED, taken);
    // The next exchange gives the money back to the coordinator. Counted here, it does not vanish from the
    // balance that callers are told (LeasedBalance.balance) until the coordinator's reply replaces the word.
    Atomics.add(this.#words64, first + layout.MONEY_REMAINING, taken);
    return taken;
  }
}
