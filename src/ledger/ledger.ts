/**
 * The ledger: the limits and the money of all accounts, in shared buffers. Every listener and the main thread
 * have a Ledger of their own over the same buffers (request/listener.thread.ts, gateway/accounting-base.ts).
 * The base class Calls (calls.ts) has what listeners call: `admit`, `settle`, `release`. This class adds what
 * the main thread calls, to open accounts, credit them and flush them, and what views read. No method waits.
 *
 * Must hold: whatever threads do at once, no limit is exceeded and no money is lost. A method that changes
 * what the flush writes of an account (money, day, minute) marks it dirty; plan, group and activity are on
 * disk before they are set here. Nobody keeps an object that `minute.take` or `settle` returns, because the
 * next call on the same Ledger overwrites it. Further tests: test/threads/ledger-hammer.test.ts,
 * test/threads/ledger-model.test.ts, test/threads/ledger-money.test.ts.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { QuotaLimits } from '../core/quotas.js';
import {
  asAccountIndex,
  asCallSlot,
  type AccountIndex,
  type CallSlot,
  type GroupIndex,
  type KeyIndex,
  type ModelScopeIndex,
  type MonotonicMs,
  type PicoUnits,
} from '../core/units.js';
import { Balance, type Funds, LeasedBalance } from './balance.js';
import { Calls, type CallsOptions } from './calls.js';
import { type DayCount, DayCounter } from './day.js';
import { DirtySet } from './dirty-set.js';
import * as layout from './layout.js';
import type { CountedViews, LedgerBuffers, LedgerViews, OnLowLease, Scope } from './layout.js';
import { dayLeases, flightLeases, LeasedStocks } from './leased-stocks.js';
import { LeasedWindow } from './leased-window.js';
import { type ScopeCounts, LimitedScopes } from './limited-scopes.js';
import { createTaken } from './reservations.js';
import { ModelScopes } from './model-scopes.js';
import { FLIGHT_BIT } from './scope-chain.js';
import {
  createTightest,
  type QuotaUse,
  ScopeQuotas,
  type SettledQuotas,
  tighten,
  type TokenMinute,
} from './scope-quotas.js';
import { QuotaBatch } from './quota-batch.js';
import { Stocks } from './stocks.js';
import { TokenWindow } from './token-window.js';
import { type MinuteCounter, Window } from './window.js';

/** What the store has of an account that is opened. Holds are not stored: a restart ends the calls. */
export interface AccountState extends Pick<Funds, 'credited' | 'spent' | 'uncovered'>, DayCount {
  /** The plan's index in the catalogue. */
  readonly planIndex: number;
  readonly active: boolean;
}

export interface AccountSnapshot extends Funds, ScopeCounts {
  readonly callsInFlight: number;
}

export class Ledger extends Calls {
  /** Keys with limits of their own. */
  readonly keys: LimitedScopes;
  readonly groups: LimitedScopes<GroupIndex>;
  /** Rules for models, one for each account and model. */
  readonly models: LimitedScopes<ModelScopeIndex>;
  /** Which slot of `models` each account and model has. */
  readonly modelScopes: ModelScopes;
  readonly #views: LedgerViews;
  readonly #accountsMax: number;
  /** Requests a minute, of accounts. */
  readonly minute: MinuteCounter<AccountIndex>;
  readonly #tightest = createTightest(); // scratch for `tokenMinuteOf`

  /**
   * If `buffers` has `coordinatorAheadMs`, limits are shared: calls take from what this
   * process was granted (leases.ts). `clock` must be `clockOf(buffers, …)`, or days would end by this host's
   * clock. `onLowLease` is called if a lease runs low.
   */
  constructor(buffers: LedgerBuffers, clock: Clock, onLowLease: OnLowLease = () => undefined) {
    const views = layout.openLedgerViews(buffers);
    const counters = countersOf(buffers, views, clock, onLowLease);
    super(views, counters);
    this.#accountsMax = buffers.accountsMax;
    this.keys = counters.keys;
    this.groups = counters.groups;
    this.models = counters.models;
    this.modelScopes = counters.modelScopes;
    this.#views = views;
    this.minute = counters.minute;
  }

  /** As Balance.collect, and marks the account dirty. Main thread. */
  collect(account: AccountIndex, amountMax: PicoUnits): PicoUnits {
    const taken = this.balance.collect(account, amountMax);
    if (taken > 0n) this.dirty.mark(account);
    return taken;
  }

  /** 0 if `openAccount` was never called. Any thread. */
  planIndexOf(account: AccountIndex): number {
    return this.#statusOf(account) >>> 1;
  }

  /** Whether the account has a slot here. Hosts with higher limits may make accounts beyond. Any thread. */
  hasSlot(account: AccountIndex): boolean {
    return account < this.#accountsMax;
  }

  /**
   * How many of the first `accounts` accounts each plan has, by its index; those without a slot are left out.
   * 2 ms per 100,000. Main thread.
   */
  countPlans(accounts: number): Map<number, number> {
    const counts = new Map<number, number>();
    const end = Math.min(accounts, this.#accountsMax);
    for (let account = 0; account < end; account++) {
      const planIndex = this.planIndexOf(asAccountIndex(account));
      counts.set(planIndex, (counts.get(planIndex) ?? 0) + 1);
    }
    return counts;
  }

  /** Whether the account is active; false if `openAccount` was never called for it. Any thread. */
  isActive(account: AccountIndex): boolean {
    return (this.#statusOf(account) & 1) === 1;
  }

  /** Call when the account is on disk, and before any thread uses the account. Main thread. */
  openAccount(account: AccountIndex, initial: AccountState): void {
    invariant(account >= 0 && account < this.#accountsMax, `account ${account} is within the ledger`);
    this.minute.clear(account);
    this.day.set(account, initial.dayNumber, initial.dayCalls);
    this.balance.set(account, initial.credited, initial.spent, initial.uncovered);
    // Last, because the account is inactive until then.
    this.#setStatus(account, initial.planIndex, initial.active);
  }

  /** Main thread. The other threads use the plan from the next request on. */
  setPlan(account: AccountIndex, planIndex: number): void {
    this.#setStatus(account, planIndex, this.isActive(account));
  }

  /** Main thread. The other threads see the change from the next request on. */
  setActive(account: AccountIndex, active: boolean): void {
    this.#setStatus(account, this.planIndexOf(account), active);
  }

  /**
   * Credits `amount`, or debits it if negative. Returns false and changes nothing if a credit exceeds
   * CREDITED_PICO_UNITS_MAX in all, or a debit exceeds the balance. Main thread.
   */
  credit(account: AccountIndex, amount: PicoUnits): boolean {
    const isCredited = this.balance.credit(account, amount);
    if (isCredited) this.dirty.mark(account);
    return isCredited;
  }

  /** Money and counts of an account now. Main thread. */
  snapshot(account: AccountIndex): AccountSnapshot {
    return {
      ...this.balance.read(account),
      ...this.day.read(account),
      minuteUsed: this.minute.usedOf(account),
      callsInFlight: this.inFlightOf(account),
    };
  }

  /** Releases the calls in the `count` slots of a dead listener; returns how many. Main thread. */
  releaseSlots(first: CallSlot, count: number): number {
    let released = 0;
    for (let slot: number = first; slot < first + count; slot++) {
      if (this.release(asCallSlot(slot))) released++;
    }
    return released;
  }

  /**
   * Frees those of `count` slots whose calls a listener had begun to settle or release when its thread ended
   * (it had _claimed_ the slot: reservations.ts); returns how many. Such a call is no longer in flight. Money
   * and quotas of the call that the listener had not given back stay held until the gateway is started again
   * or the quota's period is over: nobody knows how far the listener came, and nothing may be given back
   * twice. Main thread (gateway/accounting.ts), after the listener's thread has exited and after
   * `releaseSlots`: an earlier call could free a slot in use.
   */
  freeClaimedSlots(first: CallSlot, count: number): number {
    let freed = 0;
    for (let index: number = first; index < first + count; index++) {
      const slot = asCallSlot(index);
      if (!this.reservations.isClaimed(slot)) continue;
      this.close(slot, this.reservations.read(slot, createTaken()).account);
      freed++;
    }
    return freed;
  }

  /** The account's own group. Any thread. */
  groupOf(account: AccountIndex): GroupIndex | undefined {
    return layout.indexIn(Atomics.load(this.#views.accountExtras, layout.groupAt(account))) as
      | GroupIndex
      | undefined;
  }

  /** Calls in flight stay counted in the former group until they end. Main thread. */
  setGroup(account: AccountIndex, group: GroupIndex | undefined): void {
    Atomics.store(this.#views.accountExtras, layout.groupAt(account), layout.wordOf(group));
  }

  /**
   * Of all scopes of a call, the one with the fewest tokens left this minute; undefined if none limits tokens
   * a minute. `plan`: the limits of the account. `key`: undefined if the key has no limits of its own. Any
   * thread.
   */
  tokenMinuteOf(
    account: AccountIndex,
    plan: QuotaLimits,
    key: KeyIndex | undefined,
  ): TokenMinute | undefined {
    let group = this.groupOf(account);
    const planLimit = plan.tokensPerMinute;
    if (planLimit === undefined && key === undefined && group === undefined) return undefined;
    const nowMs = this.clock.monotonicMs();
    this.#tightest.limit = 0; // None yet.
    if (key !== undefined) this.#tighten(this.keys.recordOf(key), nowMs);
    if (planLimit !== undefined) {
      this.#tighten(layout.recordOf(this.#views, { kind: 'account', index: account }), nowMs, planLimit);
    }
    for (; group !== undefined; group = this.groups.parentOf(group)) {
      this.#tighten(this.groups.recordOf(group), nowMs);
    }
    return this.quotas.tokenMinuteOf(this.#tightest, nowMs);
  }

  /** Replaces `#tightest` by the record's scope if this scope limits tokens a minute and has fewer left. */
  #tighten(
    record: number | undefined,
    nowMs: MonotonicMs,
    limit = record === undefined ? undefined : this.quotas.tokensPerMinuteOf(record),
  ): void {
    if (limit === undefined) return;
    tighten(this.#tightest, limit, limit - this.quotas.minuteTokensOf(record, limit, nowMs), record);
  }

  /**
   * What is used of a scope's quotas, besides requests a minute and calls a day. `plan`: the limits of an
   * account, which its quota record lacks. It is given for accounts alone, and always for them. An account's
   * calls in flight are left out: `inFlightOf` has them. Any thread.
   */
  useOf(scope: Scope, plan?: QuotaLimits): QuotaUse[] {
    const record = layout.recordOf(this.#views, scope);
    if (plan !== undefined) {
      const { mask, limits } = this.quotas.planOf(plan);
      return this.quotas.useOf(record, mask & ~FLIGHT_BIT, (quota) => limits[quota]!);
    }
    if (record === undefined) return [];
    return this.quotas.useOf(record, this.quotas.maskOf(record), (quota) =>
      this.quotas.limitOf(record, quota),
    );
  }

  /**
   * What ended calls have used of a scope's quotas, without what calls in flight hold, for the store.
   * Undefined if the scope has no quota record. Main thread.
   */
  settledOf(scope: Scope): SettledQuotas | undefined {
    const record = layout.recordOf(this.#views, scope);
    return record === undefined ? undefined : this.quotas.settledOf(record);
  }

  /**
   * Counts what `settledOf` returned `ageMs` ago. An account without a quota record gets one; another scope
   * without one keeps no use, because it has no such limit. Main thread, after the scope was opened.
   */
  restoreSettled(scope: Scope, settled: SettledQuotas, ageMs: number): void {
    const record =
      scope.kind === 'account'
        ? this.quotas.recordAt(this.#views.accountExtras, layout.accountRecordAt(scope.index))
        : layout.recordOf(this.#views, scope);
    if (record !== undefined) this.quotas.restore(record, settled, ageMs);
  }

  #statusOf(account: AccountIndex): number {
    return Atomics.load(this.#views.accounts.records32, layout.statusAt(account));
  }

  /**
   * Writes the account's status word: plan index and active bit. The main thread alone writes the word, so
   * nothing changes between a read and this store.
   */
  #setStatus(account: AccountIndex, planIndex: number, active: boolean): void {
    const status = (planIndex << 1) | (active ? 1 : 0);
    Atomics.store(this.#views.accounts.records32, layout.statusAt(account), status);
  }
}

/**
 * Chooses how a ledger counts: everything that this process admits or, if limits are shared, what it was
 * granted. The choice is made for the whole process, not by account, so each call site sees one class, and V8
 * inlines the call. No test sees a call site with two classes; bench/micro/ledger.ts shows the time lost.
 */
function countersOf(
  { keysMax, groupsMax, timezone, coordinatorAheadMs, quotas: memory }: LedgerBuffers,
  views: LedgerViews,
  clock: Clock,
  onLowLease: OnLowLease,
): CallsOptions & { readonly minute: MinuteCounter<AccountIndex> } {
  const isShared = coordinatorAheadMs !== undefined;
  const stocks = isShared ? new LeasedStocks(views.quotas.words64, clock) : new Stocks(views.quotas.words64);
  const window = isShared ? undefined : new TokenWindow(views.quotas, clock);
  const quotas = new ScopeQuotas(views.quotas, { stocks, window }, clock, timezone);
  const minuteOf = <Index extends number>(records: CountedViews, onLow: (index: number) => void) =>
    isShared ? new LeasedWindow<Index>(records, clock, onLow) : new Window<Index>(records, clock);
  const dayOf = (records: CountedViews, onLow: (index: number) => void) => {
    const words = records.records64;
    if (!isShared) return new DayCounter(records, clock);
    return new DayCounter(records, clock, new LeasedStocks(words, clock, dayLeases(words)), onLow);
  };
  const onLowOf = (kind: Scope['kind']) => (index: number) => onLowLease(kind, index);
  const limited = <Index extends number>(slots: number, kind: 'key' | 'group' | 'model') => {
    const onLow = onLowOf(kind);
    const counters = (records: CountedViews) => ({
      minute: minuteOf<Index>(records, onLow),
      day: dayOf(records, onLow),
    });
    return new LimitedScopes<Index>(slots, views[`${kind}s`], counters, quotas);
  };
  const onLow = onLowOf('account');
  return {
    quotas,
    batch: new QuotaBatch(quotas, views.quotas, isShared ? undefined : memory),
    keys: limited<KeyIndex>(keysMax, 'key'),
    groups: limited<GroupIndex>(groupsMax, 'group'),
    models: limited<ModelScopeIndex>(views.modelPairs.length, 'model'),
    modelScopes: new ModelScopes(views.modelPairs),
    minute: minuteOf(views.accounts, onLow),
    day: dayOf(views.accounts, onLow),
    balance: isShared ? new LeasedBalance(views, onLow) : new Balance(views),
    flights: isShared
      ? new LeasedStocks(views.accountExtras64, clock, flightLeases(views.accounts.records64))
      : new Stocks(views.accountExtras64, { hasSettled: false }),
    dirty: new DirtySet(views.accounts),
    clock,
    onLowLease: isShared ? onLowLease : undefined,
  };
}
