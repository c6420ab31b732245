/**
 * Counts what calls take from their scopes (scope-chain.ts), and give back: calls in flight, calls of the
 * day, tokens, spending, holds. Ledger (ledger.ts) extends this class. Listeners admit and settle by it
 * (request/admit.ts, request/settle.ts); the main thread releases the calls of a dead listener
 * (gateway/accounting.ts). Each thread has an object of its own.
 *
 *     admit ──> settle ──> (reverse)      charged, and in rare cases reversed
 *          └──> release                   given back
 *
 * Must hold: a rejected call has taken nothing. An admitted call is settled or released once, and gives back
 * to the day and month that it took of. One exception, for calls a day: if midnight comes while a call takes,
 * scopes that counted it in the later day keep one call too many; no limit is exceeded. After each change of
 * what the store keeps of a scope, the scope is marked dirty. (What a listener has taken when it dies within
 * `admit` stays taken until the gateway is restarted.) Tests: test/unit/ledger/quotas.test.ts,
 * test/unit/ledger/ledger.test.ts, test/threads/ledger-hammer.test.ts.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { QuotasLeft } from '../core/quotas-left.js';
import type { AccountIndex, CallSlot, MonotonicMs, PicoUnits, WallMs } from '../core/units.js';
import { asMonotonicMs, asPicoUnits, asWallMs } from '../core/units.js';
import type { Balance, Settlement } from './balance.js';
import { type DayCounter, dayNumberOf } from './day.js';
import type { DirtySet } from './dirty-set.js';
import { CALLS_IN_FLIGHT, CALLS_PER_MONTH, flightAt, type LedgerViews, type QuotaNumber } from './layout.js';
import {
  ACCOUNT_SCOPE,
  DAY_BIT,
  FIRST_SCOPE,
  NO_DAY,
  Reservations,
  type ScopePosition,
  type Taken,
} from './reservations.js';
import {
  CALLS_PER_DAY,
  kindOf,
  QUOTA_ORDER,
  type CallNeeds,
  type QuotaRejection,
  QuotaRejections,
  type QuotaRejectionsOptions,
} from './quota-rejections.js';
import { CallLeft } from './call-left.js';
import type { QuotaBatch } from './quota-batch.js';
import { type CallScopes, FLIGHT_BIT, ScopeChain, type ScopeTables } from './scope-chain.js';
import {
  type Amounts,
  createAmounts,
  nanoUnitsOf,
  NOTHING_USED,
  type ScopeQuotas,
  setAmounts,
  type TokenMinute,
} from './scope-quotas.js';
import { NO_PERIOD, type Stocks } from './stocks.js';

export interface CallsOptions extends ScopeTables, QuotaRejectionsOptions {
  /** Calls in flight of accounts; those of other scopes are in quota records. */
  readonly flights: Stocks;
  readonly dirty: DirtySet;
  readonly batch: QuotaBatch;
}

const NO_MASKS = new Uint8Array(0); // of a call with `Taken.scopeCount` 0
const MONTH_BIT = 1 << CALLS_PER_MONTH;
const TRIES_MAX = 1_000; // of `#takeAll`, each with a later day or month; only a bug needs as many
const AFTER_ALL_DAYS = 2 ** 30 - 1; // `Taken.dayNumber` before a call of a day is taken: `Math.min` replaces it

export class Calls {
  readonly #options: CallsOptions;
  readonly #flights: Stocks;
  protected readonly reservations: Reservations;
  /** Calls a day, and money, of accounts. */
  readonly day: DayCounter;
  readonly balance: Balance;
  /** Accounts whose money, day or minute has changed since the last flush. */
  readonly dirty: DirtySet;
  protected readonly quotas: ScopeQuotas;
  protected readonly clock: Clock;
  // The next fields are about the one call that is being admitted, settled, released or reversed. So nothing
  // that `Calls` calls meanwhile, such as `onLowLease`, may do that to another call.
  readonly #chain: ScopeChain;
  readonly #taken: Taken; // the chain's
  readonly rejections: QuotaRejections;
  readonly #callLeft: CallLeft;
  /** What the call held and used of each quota. For quotas of calls, `#held` is 1 and `#used` 0. */
  readonly #held = createAmounts(1);
  readonly #used = createAmounts(0);
  /** When the admission began. `#wallMs` is for `#takeAll`, which sets it once for all quotas (40 ns). */
  #nowMs: MonotonicMs = asMonotonicMs(0);
  #wallMs: WallMs = asWallMs(0);

  constructor(views: LedgerViews, options: CallsOptions) {
    const { flights, day, balance, dirty, quotas, clock } = options;
    this.#options = options;
    this.#flights = flights;
    this.reservations = new Reservations(views);
    this.day = day;
    this.balance = balance;
    this.dirty = dirty;
    this.quotas = quotas;
    this.clock = clock;
    this.#chain = new ScopeChain(views, options);
    this.#taken = this.#chain.taken;
    this.rejections = new QuotaRejections(options, this.#chain);
    this.#callLeft = new CallLeft(balance, this.#chain);
  }

  /** The account's calls in flight now. Any thread. */
  inFlightOf(account: AccountIndex): number {
    return this.#flights.read(flightAt(account), NO_PERIOD).taken;
  }

  /**
   * Takes all that the call needs, or nothing, in this order: calls in flight, tokens of the minute, calls of
   * the day, the other quotas of days and months, the hold, and a request of the model's minute; of each
   * quota in the order of the chain. If one take fails, the earlier takes are given back. Until that is done
   * a call of another thread may be rejected that would otherwise pass, but no limit is ever exceeded.
   * Returns undefined if the call is admitted. `nowMs` may be a little old. The slot's own listener calls it.
   */
  admit(
    slot: CallSlot,
    scopes: CallScopes,
    needs: CallNeeds,
    nowMs = this.clock.monotonicMs(),
  ): QuotaRejection | undefined {
    this.#nowMs = nowMs;
    this.#callLeft.begin();
    if (!this.reservations.isFree(slot)) throw new Error(`invariant broken: call slot ${slot} is free`);
    invariant(needs.tokens >= 0, 'the tokens that a call may use are not negative');
    const { account, plan } = scopes;
    const taken = this.#taken;
    // `mayAskForMore` is false because no coordinator can help: all quota records of this gateway are in use.
    if (!this.#chain.set(scopes))
      return { ...this.rejections.ofAccount(account, 'scopes', 0n, 0n), mayAskForMore: false };
    if (!this.#takeFlight(account, plan.callsInFlightMax))
      return this.rejections.rejectionOf(ACCOUNT_SCOPE, CALLS_IN_FLIGHT, scopes, needs);
    let rejection: QuotaRejection | undefined;
    if (taken.scopeCount > 0) rejection = this.#takeAll(scopes, needs);
    else if (needs.isFree !== true) rejection = this.#takeDay(scopes, needs);
    if (needs.isFree === true) {
      taken.dayNumber = NO_DAY;
      this.#callLeft.perDay = this.day.leftOf(account, dayNumberOf(this.clock.wallMs()), plan.callsPerDay);
    }
    if (rejection === undefined && !this.balance.hold(account, needs.hold)) {
      this.#giveBack();
      rejection = this.rejections.rejectionOf(ACCOUNT_SCOPE, 'balance', scopes, needs);
    }
    if (rejection === undefined && scopes.model?.limits.requestsPerMinute !== undefined)
      rejection = this.#takeModelMinute(scopes, needs);
    if (rejection !== undefined) {
      this.#flights.settle(flightAt(account), NO_PERIOD, 1, 0);
      return rejection;
    }
    this.reservations.open(slot, needs.hold, taken);
    this.dirty.mark(account);
    // The store keeps a call of the month from its take on.
    if (taken.scopeCount > 0) this.#markOthers(taken, MONTH_BIT);
    return undefined;
  }

  /**
   * What is left of the quotas of the call that `admit` has just admitted; no other method may be called in
   * between. `minute` and `minutes` are the rate-limit phase's: see `CallLeft.read`.
   */
  quotasLeft(account: AccountIndex, minute: number | undefined, minutes?: readonly number[]): QuotasLeft {
    return this.#callLeft.read(account, minute, minutes);
  }

  /** As `tokenMinuteOf` of ledger.ts, for the call just admitted, from what its takes left. */
  tokenMinuteLeft(): TokenMinute | undefined {
    return this.quotas.tokenMinuteOf(this.#callLeft.tightest, this.#nowMs, this.#taken.tokens);
  }

  /**
   * Charges `cost`, counts `tokens` and frees the slot; undefined if the call was settled or released before.
   * The balance never goes below zero: what it cannot pay is returned, and recorded, as uncovered. The next
   * `settle` overwrites the result. `nowMs`: when the call ended. Any thread.
   */
  settle(
    slot: CallSlot,
    cost: PicoUnits,
    tokens = 0,
    nowMs = this.clock.monotonicMs(),
  ): Settlement | undefined {
    invariant(tokens >= 0, 'the tokens that a call used are not negative');
    if (!this.reservations.claim(slot)) return undefined;
    const taken = this.reservations.read(slot, this.#taken);
    const hold = this.reservations.holdOf(slot);
    const settlement = this.balance.settle(taken.account, hold, cost);
    if (taken.scopeCount > 0) {
      setAmounts(this.#held, taken.tokens, nanoUnitsOf(hold));
      setAmounts(this.#used, tokens, nanoUnitsOf(cost));
      this.#chain.recall(taken);
      // A call of the month stays taken, as that of the day does.
      this.#settleQuotas(this.#used, ~MONTH_BIT, nowMs);
    }
    this.close(slot, taken.account);
    return settlement;
  }

  /** A copy of what the call in `slot` took, for `reverse`. The slot's listener asks before it settles. */
  takenOf(slot: CallSlot): Taken {
    const taken = this.reservations.read(slot, this.#taken);
    return { ...taken, masks: taken.scopeCount === 0 ? NO_MASKS : taken.masks.slice() };
  }

  /**
   * Reverses `settle` of an undelivered response; the tokens of the minute stay used. Only the thread that
   * settled may call it, once: the slot is free by then, so nothing else prevents a second time.
   */
  reverse(taken: Taken, { charged, uncovered }: Settlement, tokens = 0): void {
    this.balance.reverse(taken.account, charged, uncovered);
    this.#chain.recall(taken);
    setAmounts(this.#used, tokens, nanoUnitsOf(asPicoUnits(charged + uncovered)));
    this.#giveBackDays(taken);
    for (let scope = FIRST_SCOPE; scope < taken.scopeCount; scope++)
      this.quotas.reverse(this.#chain.links[scope]!.record, taken.masks[scope]!, this.#used, taken);
    this.#markOthers(taken, ~DAY_BIT);
    this.dirty.mark(taken.account);
  }

  /** Gives back all that the call took; false if it was settled or released before. Any thread. */
  release(slot: CallSlot): boolean {
    if (!this.reservations.claim(slot)) return false;
    const taken = this.reservations.read(slot, this.#taken);
    const hold = this.reservations.holdOf(slot);
    this.balance.giveBack(taken.account, hold);
    if (taken.scopeCount > 0) {
      setAmounts(this.#held, taken.tokens, nanoUnitsOf(hold));
      this.#chain.recall(taken);
    }
    this.#giveBack();
    this.close(slot, taken.account);
    return true;
  }

  /**
   * Ends a claimed call. Gives back the call in flight (1 held, 0 used) last, so that a claimed call still
   * counts as in flight: freeClaimedSlots of ledger.ts relies on that.
   */
  protected close(slot: CallSlot, account: AccountIndex): void {
    this.reservations.close(slot);
    this.#flights.settle(flightAt(account), NO_PERIOD, 1, 0);
    this.dirty.mark(account);
  }

  /** Replaces `#held` by `used` in each scope of `#chain`, for the quotas in `mask` but calls a day. */
  #settleQuotas(used: Amounts, mask: number, nowMs: MonotonicMs): void {
    this.#options.batch.settle(this.#chain, mask, this.#held, used, nowMs);
    this.#markOthers(this.#taken, ~DAY_BIT);
  }

  #takeFlight(account: AccountIndex, callsMax: number): boolean {
    const isTaken = this.#flights.take(flightAt(account), NO_PERIOD, 1, callsMax) !== undefined;
    this.#callLeft.inFlight = this.#flights.left;
    if (this.#flights.takeRanLow()) this.#options.onLowLease?.('account', account);
    return isTaken;
  }

  /** Takes the account's call of the day. Most calls take of no other quota, and need no quota record. */
  #takeDay(scopes: CallScopes, needs: CallNeeds): QuotaRejection | undefined {
    const dayNumber = this.day.take(scopes.account, scopes.plan.callsPerDay);
    if (dayNumber === undefined)
      return this.rejections.rejectionOf(ACCOUNT_SCOPE, CALLS_PER_DAY, scopes, needs);
    this.#taken.dayNumber = dayNumber;
    this.#callLeft.perDay = this.day.left;
    return undefined;
  }

  /**
   * Takes all but the hold and the account's calls in flight. Of a free call that is calls in flight of the
   * other scopes. All scopes take of one day and one month, because a reservation has one `day`: if midnight
   * (in `quota_timezone`) comes, or a scope is a day ahead because the clock was set back, takes all again of
   * the later day. Calls a day have a day of their own, `dayNumber`: see `#takeDayOf`.
   */
  #takeAll(scopes: CallScopes, needs: CallNeeds): QuotaRejection | undefined {
    const taken = this.#taken;
    setAmounts(this.#held, needs.tokens, nanoUnitsOf(needs.hold));
    taken.tokens = needs.tokens;
    this.#wallMs = this.clock.wallMs();
    this.quotas.readPeriods(taken, this.#wallMs);
    let quotaBits = 0;
    for (let scope = FIRST_SCOPE; scope < taken.scopeCount; scope++)
      quotaBits |= this.#chain.links[scope]!.mask;
    if (needs.isFree === true) quotaBits &= FLIGHT_BIT;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const { day, month } = taken;
      const rejection = this.#takeEach(quotaBits, scopes, needs);
      if (rejection !== undefined || (taken.day === day && taken.month === month)) return rejection;
    }
    throw new Error('invariant broken: a call takes of one day and one month in bounded tries');
  }

  /** One try of `#takeAll`. If the period is a later one, sets that in `#taken` and takes nothing. */
  #takeEach(quotaBits: number, scopes: CallScopes, needs: CallNeeds): QuotaRejection | undefined {
    const taken = this.#taken;
    const { day, month } = taken;
    const { links } = this.#chain;
    taken.dayNumber = AFTER_ALL_DAYS;
    this.#callLeft.begin();
    if (this.#options.batch.take(this.#chain, quotaBits, this.#held, this.#nowMs, this.#callLeft))
      quotaBits &= DAY_BIT;
    for (const quota of QUOTA_ORDER) {
      const bit = quota === CALLS_PER_DAY ? DAY_BIT : 1 << quota;
      if ((quotaBits & bit) === 0) continue;
      for (let scope = FIRST_SCOPE; scope < taken.scopeCount; scope++) {
        if ((links[scope]!.mask & bit) === 0) continue;
        const isTaken = quota === CALLS_PER_DAY ? this.#takeDayOf(scope, scopes) : this.#take(scope, quota);
        if (!isTaken) {
          this.#giveBack();
          return this.rejections.rejectionOf(scope, quota, scopes, needs);
        }
        if (quota === CALLS_PER_DAY || (taken.day === day && taken.month === month)) continue;
        // `#take` found a later period. What it took goes back to that period, and all that was taken before
        // it to the earlier period. The next try takes of the later period.
        const later = { day: taken.day, month: taken.month };
        this.quotas.settle(links[scope]!.record, quota, this.#held, NOTHING_USED, taken, this.#nowMs);
        taken.masks[scope]! &= ~bit;
        Object.assign(taken, { day, month });
        this.#giveBack();
        Object.assign(taken, later).masks.fill(0);
        return undefined;
      }
    }
    return undefined;
  }

  /** Takes of one quota of one scope that has it. */
  #take(scope: ScopePosition, quota: QuotaNumber): boolean {
    const taken = this.#taken;
    const { index, record, limits, firstLimit } = this.#chain.links[scope]!;
    const limit = limits[firstLimit + quota]!;
    if (!this.quotas.take(record, quota, limit, this.#held, taken, this.#nowMs)) return false;
    taken.masks[scope]! |= 1 << quota;
    this.#callLeft.set(scope, quota, this.quotas.left, limit, record);
    if (this.quotas.takeRanLow()) this.#options.onLowLease?.(kindOf(scope), index);
    return true;
  }

  /** Takes a call of the day (UTC+8) of one scope that has a limit. */
  #takeDayOf(scope: ScopePosition, { account, plan }: CallScopes): boolean {
    const taken = this.#taken;
    const { index, callsPerDay } = this.#chain.links[scope]!;
    const limited = scope === ACCOUNT_SCOPE ? undefined : this.#chain.limitedAt(scope);
    const dayNumber =
      limited === undefined
        ? this.day.take(account, plan.callsPerDay, this.#wallMs)
        : limited.takeDay(index, callsPerDay, this.#wallMs);
    if (dayNumber === undefined) return false;
    this.#callLeft.setDay(scope, limited === undefined ? this.day.left : limited.dayLeft);
    // The earliest day, if scopes count different days: giving back never lowers a day that did not count it.
    taken.dayNumber = Math.min(taken.dayNumber, dayNumber);
    taken.masks[scope]! |= DAY_BIT;
    return true;
  }

  /**
   * The last step of `admit`, because a request of a minute cannot be given back. `admit` has seen the rule
   * and its limit, and the chain has set `#taken.model`, so each `!` is safe.
   */
  #takeModelMinute({ account, model }: CallScopes, needs: CallNeeds): QuotaRejection | undefined {
    const take = this.#options.models.minute.take(this.#taken.model!, model!.limits.requestsPerMinute!);
    this.#callLeft.modelMinute = take.remaining;
    if (take.admitted) return undefined;
    this.balance.giveBack(account, needs.hold);
    this.#giveBack();
    return this.rejections.ofModelMinute(model!, take);
  }

  /**
   * Gives `#held` back by `#chain`, both set before; but not the hold and the account's call in flight. Marks
   * the account dirty, because a flush may have read its day and month while the call was taken.
   */
  #giveBack(): void {
    const taken = this.#taken;
    this.#giveBackDays(taken);
    if (taken.scopeCount > 0) this.#settleQuotas(NOTHING_USED, ~0, this.clock.monotonicMs());
    this.dirty.mark(taken.account);
  }

  /** A call with `scopeCount` 0 has taken of the account's day alone, and its `masks` are not valid. */
  #giveBackDays(taken: Taken): void {
    const { account, masks, scopeCount, dayNumber } = taken;
    if (dayNumber === NO_DAY) return;
    if (scopeCount === 0 || (masks[ACCOUNT_SCOPE]! & DAY_BIT) !== 0) this.day.giveBack(account, dayNumber);
    for (let scope = FIRST_SCOPE; scope < scopeCount; scope++)
      if (scope !== ACCOUNT_SCOPE && (masks[scope]! & DAY_BIT) !== 0)
        this.#chain.limitedAt(scope).giveBackDay(this.#chain.links[scope]!.index, dayNumber);
  }

  /** Marks scopes that took of `mask`; the account is marked by `admit`, `#giveBack`, `reverse`, `close`. */
  #markOthers({ scopeCount, masks }: Taken, mask: number): void {
    for (let scope = FIRST_SCOPE; scope < scopeCount; scope++)
      if (scope !== ACCOUNT_SCOPE && (masks[scope]! & mask) !== 0)
        this.#chain.limitedAt(scope).dirty.mark(this.#chain.links[scope]!.index);
  }
}
