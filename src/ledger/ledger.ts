/**
 * The ledger: the limits and the money of all accounts, in shared buffers. Every listener and the main thread
 * have a Ledger of their own over the same buffers. Listeners take and settle; the main thread opens
 * accounts, credits them and drains what has changed. Nothing here waits, and nothing on a request's path
 * allocates but the bigints themselves.
 *
 * Must hold: whatever threads do at once, no limit is exceeded and no money is lost. An object that
 * `takeMinute` or `settle` returns is overwritten by the next call on the same Ledger, so nobody keeps it.
 * Tests: unit/ledger/ledger (a small world, exhaustively), threads/ledger-hammer, ledger-model and
 * ledger-money.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { QuotaLimits } from '../core/quotas.js';
import {
  asAccountIndex,
  asCallSlot,
  asGroupIndex,
  type AccountIndex,
  type CallSlot,
  type GroupIndex,
  type KeyIndex,
  type ModelScopeIndex,
  type MonotonicMs,
  type PicoUnits,
  type WallMs,
} from '../core/units.js';
import type { Funds } from './balance.js';
import { Calls } from './calls.js';
import { countersOf, type OnLowLease } from './counters.js';
import { resetOfDay } from './day.js';
import { DirtySet } from './dirty-set.js';
import {
  ACCOUNT_RECORD,
  BESIDE_WORDS32,
  COUNTED_WORDS32,
  GROUP,
  openLedgerViews,
  recordOf,
  type Scope,
  STATUS,
  type LedgerBuffers,
  type LedgerViews,
} from './layout.js';
import type { LimitedScopes } from './limited-scopes.js';
import { ModelScopes } from './model-scopes.js';
import { FLIGHT_BIT } from './scope-chain.js';
import type { QuotaUse, SettledQuotas, TokenMinute } from './scope-quotas.js';
import type { MinuteCounter, MinuteTake } from './window.js';

/** What the store knows of an account when it is opened. Holds are not stored: a restart releases them. */
export interface AccountState {
  readonly credited: PicoUnits;
  readonly spent: PicoUnits;
  readonly uncovered: PicoUnits;
  /** The last day the account was used, in days since 1970-01-01 UTC+8, and its calls on that day. */
  readonly dayNumber: number;
  readonly dayCalls: number;
  readonly planIndex: number;
  readonly active: boolean;
}

export interface AccountSnapshot extends Funds {
  /** Permits that weigh in the current minute. */
  readonly minuteUsed: number;
  /** The last day the account was used, as in AccountState: it may be before today. */
  readonly dayNumber: number;
  readonly dayCalls: number;
  readonly callsInFlight: number;
}

export class Ledger extends Calls {
  readonly keys: LimitedScopes;
  readonly groups: LimitedScopes<GroupIndex>;
  /** Pairs of an account and a model that its plan has a rule for. */
  readonly models: LimitedScopes<ModelScopeIndex>;
  readonly modelScopes: ModelScopes;
  readonly #views: LedgerViews;
  readonly #accountsMax: number;
  readonly #status: Int32Array;
  readonly #window: MinuteCounter<AccountIndex>;
  /** Scratch for `tokenMinuteOf`: the scope with the fewest tokens left so far; limit 0 if there is none. */
  readonly #tight = { limit: 0, taken: 0, record: undefined as number | undefined };

  /**
   * If `buffers` has a `calendar`, limits are shared: calls take from what this process was granted
   * (leases.ts), and `clock` must be `clockOf(buffers, …)`. `low` is called if a lease runs low.
   */
  constructor(buffers: LedgerBuffers, clock: Clock, low: OnLowLease = () => undefined) {
    const views = openLedgerViews(buffers);
    const counters = countersOf(buffers, views, clock, low);
    const { keys, groups, models, window } = counters;
    const modelScopes = new ModelScopes(views.modelPairs);
    const dirty = new DirtySet(views.accounts);
    const lowOrNone = buffers.calendar === undefined ? undefined : low;
    super(views, { ...counters, modelScopes, dirty, clock, low: lowOrNone });
    this.#accountsMax = buffers.accountsMax;
    this.keys = keys;
    this.groups = groups;
    this.models = models;
    this.modelScopes = modelScopes;
    this.#views = views;
    this.#status = views.accounts.records32;
    this.#window = window;
  }

  /** Takes one request of the minute, or nothing; see `Window.take`. Any thread. */
  takeMinute(account: AccountIndex, requestsPerMinute: number): MinuteTake {
    return this.#window.take(account, requestsPerMinute);
  }

  /** What `takeMinute` would return now; takes nothing. Any thread. */
  checkMinute(account: AccountIndex, requestsPerMinute: number): MinuteTake {
    return this.#window.check(account, requestsPerMinute);
  }

  /** See `Balance.collect`. Main thread. */
  collect(account: AccountIndex, most: PicoUnits): PicoUnits {
    const taken = this.balance.collect(account, most);
    if (taken > 0n) this.dirty.mark(account);
    return taken;
  }

  /** The most that a hold could take now. Any thread. */
  available(account: AccountIndex): PicoUnits {
    return this.balance.available(account);
  }

  /**
   * What the account could spend, as far as this process knows. If limits are shared, it includes what is
   * left at the coordinator, which a hold cannot take yet. Any thread.
   */
  balanceOf(account: AccountIndex): PicoUnits {
    return this.balance.balance(account);
  }

  planIndexOf(account: AccountIndex): number {
    return Atomics.load(this.#status, account * COUNTED_WORDS32 + STATUS) >>> 1;
  }

  /**
   * Number of accounts on each plan, by the plan's index, of the first `accounts` accounts. 2 ms per 100,000.
   * Main thread.
   */
  countPlans(accounts: number): Map<number, number> {
    const counts = new Map<number, number>();
    for (let account = 0; account < accounts; account++) {
      const planIndex = this.planIndexOf(asAccountIndex(account));
      counts.set(planIndex, (counts.get(planIndex) ?? 0) + 1);
    }
    return counts;
  }

  /** Whether the account is active; false if it was never opened. Any thread. */
  isActive(account: AccountIndex): boolean {
    return (Atomics.load(this.#status, account * COUNTED_WORDS32 + STATUS) & 1) === 1;
  }

  /**
   * Sets all words of an account that no thread uses yet. Does not mark it dirty: the store has it already.
   * Main thread.
   */
  openAccount(account: AccountIndex, initial: AccountState): void {
    invariant(account >= 0 && account < this.#accountsMax, `account ${account} is within the ledger`);
    this.#window.clear(account);
    this.day.set(account, initial.dayNumber, initial.dayCalls);
    this.balance.set(account, initial.credited, initial.spent, initial.uncovered);
    this.#setStatus(account, initial.planIndex, initial.active);
  }

  /**
   * After `openAccount`: counts `used` requests of the minute that ended `ageMs` ago; see `Window.restore`.
   * Main thread.
   */
  restoreMinute(account: AccountIndex, used: number, ageMs: number): void {
    this.#window.restore(account, used, ageMs);
  }

  /** Main thread. The other threads use it from the next request on. */
  setPlan(account: AccountIndex, planIndex: number): void {
    this.#setStatus(account, planIndex, this.isActive(account));
  }

  /** Main thread. The other threads use it from the next request on. */
  setActive(account: AccountIndex, active: boolean): void {
    this.#setStatus(account, this.planIndexOf(account), active);
  }

  /**
   * Credits `amount`, or debits it if it is negative; false, and changes nothing, if that cannot be: see
   * `Balance.credit`. Main thread.
   */
  credit(account: AccountIndex, amount: PicoUnits): boolean {
    const done = this.balance.credit(account, amount);
    if (done) this.dirty.mark(account);
    return done;
  }

  /** Permits that weigh in the current minute. Any thread. */
  minuteUsedOf(account: AccountIndex): number {
    return this.#window.usedOf(account);
  }

  /** The last day the account was used and its calls on that day. Any thread. */
  dayOf(account: AccountIndex): { readonly dayNumber: number; readonly dayCalls: number } {
    return this.day.read(account);
  }

  /** Money and counts of an account now. Main thread. */
  snapshot(account: AccountIndex): AccountSnapshot {
    return {
      ...this.balance.read(account),
      ...this.day.read(account),
      minuteUsed: this.#window.usedOf(account),
      callsInFlight: this.inFlightOf(account),
    };
  }

  /**
   * Releases the calls in `count` slots from `first`, whose listener has died; returns how many. A call that
   * another thread settles meanwhile is settled or released, never both. Main thread.
   */
  releaseSlots(first: CallSlot, count: number): number {
    let released = 0;
    for (let slot: number = first; slot < first + count; slot++) {
      if (this.release(asCallSlot(slot))) released++;
    }
    return released;
  }

  /**
   * Visits at most `max` accounts whose money, day count or minute has changed since their last visit;
   * returns how many. A change made meanwhile is seen by this visit, or comes with the next drain, or both.
   * Main thread.
   */
  drainDirty(visit: (account: AccountIndex) => void, max: number): number {
    return this.dirty.drain(visit, max);
  }

  /** When an account with no call of the day left is admitted again. Any thread. */
  resetOfDay(account: AccountIndex): WallMs {
    return resetOfDay(this.day.read(account).dayNumber, this.clock.wallMs());
  }

  /** The account's own group. Any thread. */
  groupOf(account: AccountIndex): GroupIndex | undefined {
    const group = Atomics.load(this.#views.besides, account * BESIDE_WORDS32 + GROUP);
    return group === 0 ? undefined : asGroupIndex(group - 1);
  }

  /** Calls in flight stay counted in the former group until they end. Main thread. */
  setGroup(account: AccountIndex, group: GroupIndex | undefined): void {
    Atomics.store(this.#views.besides, account * BESIDE_WORDS32 + GROUP, group === undefined ? 0 : group + 1);
  }

  /**
   * The tokens of the minute of the scope that has the fewest left; undefined if no scope of the call has
   * such a limit. `plan`: the limits of the account. `key`: given if it has limits of its own. Any thread.
   */
  tokenMinuteOf(
    account: AccountIndex,
    plan: QuotaLimits,
    key: KeyIndex | undefined,
  ): TokenMinute | undefined {
    let group = this.groupOf(account);
    const ofPlan = plan.tokensPerMinute;
    if (ofPlan === undefined && key === undefined && group === undefined) return undefined;
    const nowMs = this.clock.monotonicMs();
    this.#tight.limit = 0;
    if (key !== undefined) this.#tighten(this.keys.recordOf(key), nowMs);
    if (ofPlan !== undefined) {
      this.#tighten(recordOf(this.#views, { kind: 'account', index: account }), nowMs, ofPlan);
    }
    for (; group !== undefined; group = this.groups.parentOf(group)) {
      this.#tighten(this.groups.recordOf(group), nowMs);
    }
    const { limit, taken, record } = this.#tight;
    if (limit === 0) return undefined;
    const resetMs = taken === 0 ? 0 : this.quotas.msUntilTokensFree(record, nowMs);
    return { limit, remaining: Math.max(0, limit - taken), resetMs };
  }

  /** Puts the scope with that record into `#tight`, if it has a limit of tokens a minute and fewer left. */
  #tighten(
    record: number | undefined,
    nowMs: MonotonicMs,
    limit = record === undefined ? undefined : this.quotas.tokensPerMinuteOf(record),
  ): void {
    if (limit === undefined) return;
    const tight = this.#tight;
    const taken = this.quotas.minuteTokensOf(record, limit, nowMs);
    if (tight.limit !== 0 && limit - taken >= tight.limit - tight.taken) return;
    tight.limit = limit;
    tight.taken = taken;
    tight.record = record;
  }

  /**
   * What is used of a scope's quotas, besides requests a minute and calls a day. `plan` is given for an
   * account: its limits; the result then leaves out its calls in flight. Any thread.
   */
  useOf(scope: Scope, plan?: QuotaLimits): QuotaUse[] {
    const record = recordOf(this.#views, scope);
    if (plan !== undefined) {
      const { mask, limits } = this.quotas.planOf(plan);
      return this.quotas.useOf(record, mask & ~FLIGHT_BIT, (quota) => limits[quota]!);
    }
    if (record === undefined) return [];
    return this.quotas.useOf(record, this.quotas.maskOf(record), (quota) =>
      this.quotas.limitOf(record, quota),
    );
  }

  /** The use of a scope's quotas, for the store; undefined if the scope has none. Main thread. */
  settledOf(scope: Scope): SettledQuotas | undefined {
    const record = recordOf(this.#views, scope);
    return record === undefined ? undefined : this.quotas.settledOf(record);
  }

  /** Counts what the scope had used `ageMs` ago. Main thread, after the scope was opened. */
  restoreSettled(scope: Scope, settled: SettledQuotas, ageMs: number): void {
    const record =
      scope.kind === 'account'
        ? this.quotas.recordAt(this.#views.besides, scope.index * BESIDE_WORDS32 + ACCOUNT_RECORD)
        : recordOf(this.#views, scope);
    if (record !== undefined) this.quotas.restore(record, settled, ageMs);
  }

  #setStatus(account: AccountIndex, planIndex: number, active: boolean): void {
    const status = (planIndex << 1) | (active ? 1 : 0);
    Atomics.store(this.#status, account * COUNTED_WORDS32 + STATUS, status);
  }
}
