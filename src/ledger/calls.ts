/**
 * What calls take from their scopes (scope-chain.ts), and give back: calls in flight, calls of the day,
 * tokens, spending, holds. Ledger calls it, for listeners that admit and settle, and for the main thread that
 * releases the calls of a dead listener. Any thread. Each admitted call is settled or released exactly once.
 *
 *     admit ──> settle ──> (reverse)      charged, and in rare cases reversed
 *          └──> release                   given back
 *
 * A call whose scopes have no quotas but those of its account's plan for the day and calls in flight takes
 * and gives back nothing else, and pays for nothing else.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import type { QuotaName } from '../core/quotas.js';
import {
  type AccountIndex,
  asPicoUnits,
  asWallMs,
  type CallSlot,
  asMonotonicMs,
  type GroupIndex,
  type KeyIndex,
  type ModelScopeIndex,
  type MonotonicMs,
  type PicoUnits,
  type WallMs,
} from '../core/units.js';
import type { Balance, Settlement } from './balance.js';
import type { LowLeases } from './counters.js';
import { type DayCounter, resetOfDay } from './day.js';
import type { DirtySet } from './dirty-set.js';
import type { InFlight } from './in-flight.js';
import { EXTENDED_QUOTAS, type LedgerViews } from './layout.js';
import {
  ACCOUNT_SCOPE,
  createTaken,
  DAY_BIT,
  KEY_SCOPE,
  MODEL_SCOPE,
  Reservations,
  type Taken,
} from './reservations.js';
import { type CallScopes, ScopeChain, type ScopeTables } from './scope-chain.js';
import { type Amounts, nanoUnitsOf, type Periods, type ScopeQuotas } from './scope-quotas.js';

export interface CallNeeds {
  /** What the call may cost. */
  readonly hold: PicoUnits;
  /** What it may use; 0: it is admitted as long as any are left, and counts when it ends. */
  readonly tokens: number;
}

/** Why a call was not admitted. Amounts of money are in pico-units. */
export interface Refusal {
  readonly kind: 'key' | 'account' | 'group' | 'model';
  /** Of the key, the account or the group; of a model's rule: its model. */
  readonly index: number;
  /** `scopes`: as many scopes as can be have quotas, and this one has none to be counted in. */
  readonly quota: QuotaName | 'balance' | 'scopes';
  /** Of a balance: the hold. */
  readonly limit: bigint;
  readonly left: bigint;
  /** When a call may be admitted again, as far as that is known. */
  readonly resetsMs: WallMs;
  /** The coordinator may have more. */
  readonly asks: boolean;
  /** It needs more than the limit. */
  readonly never: boolean;
}

export interface CallsOptions extends ScopeTables {
  readonly inFlight: InFlight;
  readonly day: DayCounter;
  readonly balance: Balance;
  readonly dirty: DirtySet;
  readonly clock: Clock;
  /** Undefined unless limits are shared. */
  readonly low: LowLeases | undefined;
}

const QUOTA_COUNT = EXTENDED_QUOTAS.length;
const FLIGHT = EXTENDED_QUOTAS.indexOf('calls_in_flight');
const TOKENS_PER_MINUTE = EXTENDED_QUOTAS.indexOf('tokens_per_minute');
const CALLS_PER_DAY = -1;
/** In this order admission takes them: extended quotas by number, and calls of the day. */
const ORDER = EXTENDED_QUOTAS.flatMap((_, quota) =>
  quota === TOKENS_PER_MINUTE ? [quota, CALLS_PER_DAY] : [quota],
);
const NO_MASKS = new Uint8Array(0);
/** Each try is of a later day or month than the one before. More is a bug. */
const TRIES_MAX = 1_000;
const AFTER_ALL_DAYS = 2 ** 30 - 1;

export class Calls {
  readonly #options: CallsOptions;
  readonly #inFlight: InFlight;
  readonly #reservations: Reservations;
  readonly #day: DayCounter;
  readonly #balance: Balance;
  readonly #dirty: DirtySet;
  readonly #quotas: ScopeQuotas;
  readonly #chain: ScopeChain;
  readonly #taken = createTaken();
  readonly #held: Amounts = { tokens: 0, nanoUnits: 0 };
  readonly #used: Amounts = { tokens: 0, nanoUnits: 0 };
  /** When the call that is being admitted began to take. */
  #nowMs: MonotonicMs = asMonotonicMs(0);

  constructor(views: LedgerViews, options: CallsOptions) {
    const { inFlight, day, balance, dirty, quotas } = options;
    this.#options = options;
    this.#inFlight = inFlight;
    this.#reservations = new Reservations(views);
    this.#day = day;
    this.#balance = balance;
    this.#dirty = dirty;
    this.#quotas = quotas;
    this.#chain = new ScopeChain(views, options);
  }

  /** The account's calls in flight now. Any thread. */
  inFlightOf(account: AccountIndex): number {
    return this.#inFlight.of(account);
  }

  /**
   * Takes all that the call needs, or nothing, in this order: calls in flight, tokens of the minute, calls of
   * the day, the other quotas of days and months, the hold, and a request of the model's minute; of each
   * quota in the order of the chain. A rejection gives back what was taken before it. Until then another
   * thread may be rejected although a moment later it would not be, but no thread ever gets one too many.
   * Returns undefined if the call is admitted. Owner of the slot, which is free.
   */
  admit(slot: CallSlot, scopes: CallScopes, needs: CallNeeds): Refusal | undefined {
    invariant(this.#reservations.isFree(slot), `call slot ${slot} is free when a call is admitted into it`);
    const { account, plan } = scopes;
    const taken = this.#taken;
    if (!this.#chain.set(scopes, taken)) return this.#refusal(account, 'scopes', 0n, 0n);
    if (!this.#inFlight.take(account, plan.callsInFlightMax)) {
      return this.#refuse(ACCOUNT_SCOPE, FLIGHT, scopes, needs);
    }
    let refusal = taken.scopes > 0 ? this.#takeAll(scopes, needs) : this.#takeDay(scopes, needs);
    if (refusal === undefined && !this.#balance.hold(account, needs.hold)) {
      this.#giveBack(taken);
      refusal = this.#refuse(ACCOUNT_SCOPE, 'balance', scopes, needs);
    }
    if (refusal === undefined && scopes.model?.limits.requestsPerMinute !== undefined) {
      refusal = this.#takeModelMinute(scopes, needs);
    }
    if (refusal !== undefined) {
      this.#inFlight.giveBack(account);
      return refusal;
    }
    this.#reservations.open(slot, needs.hold, taken);
    this.#dirty.mark(account);
    return undefined;
  }

  /** See `Ledger.settle`. */
  settle(slot: CallSlot, cost: PicoUnits, tokens: number): Settlement | undefined {
    if (!this.#reservations.claim(slot)) return undefined;
    const taken = this.#reservations.read(slot, this.#taken);
    const hold = this.#reservations.holdOf(slot);
    const settlement = this.#balance.settle(taken.account, hold, cost);
    if (taken.scopes > 0) this.#settleQuotas(taken, hold, cost, tokens);
    this.#reservations.close(slot);
    this.#inFlight.giveBack(taken.account);
    this.#dirty.mark(taken.account);
    return settlement;
  }

  /** See `Ledger.takenOf`. */
  takenOf(slot: CallSlot): Taken {
    const taken = this.#reservations.read(slot, this.#taken);
    return { ...taken, masks: taken.scopes === 0 ? NO_MASKS : taken.masks.slice() };
  }

  /** See `Ledger.reverse`. */
  reverse(taken: Taken, { charged, uncovered }: Settlement, tokens: number): void {
    const { account } = taken;
    this.#balance.reverse(account, charged, uncovered);
    if (taken.scopes > 0) {
      this.#chain.recall(taken);
      this.#used.nanoUnits = nanoUnitsOf(asPicoUnits(charged + uncovered));
      this.#used.tokens = tokens;
    }
    this.#giveBackDays(taken);
    for (let scope = 0; scope < taken.scopes; scope++) {
      const quotas = taken.masks[scope]! & ~DAY_BIT;
      if (quotas === 0) continue;
      this.#quotas.reverse(this.#chain.links[scope]!.record, quotas, this.#used, taken);
      this.#mark(scope);
    }
    this.#dirty.mark(account);
  }

  /** See `Ledger.release`. */
  release(slot: CallSlot): boolean {
    if (!this.#reservations.claim(slot)) return false;
    const taken = this.#reservations.read(slot, this.#taken);
    const { account } = taken;
    const hold = this.#reservations.holdOf(slot);
    this.#balance.giveBack(account, hold);
    if (taken.scopes > 0) {
      this.#setHeld(hold, taken.tokens);
      this.#chain.recall(taken);
    }
    this.#giveBack(taken);
    this.#reservations.close(slot);
    this.#inFlight.giveBack(account);
    this.#dirty.mark(account);
    return true;
  }

  #settleQuotas(taken: Taken, hold: PicoUnits, cost: PicoUnits, tokens: number): void {
    this.#setHeld(hold, taken.tokens);
    this.#used.nanoUnits = nanoUnitsOf(cost);
    this.#used.tokens = tokens;
    this.#chain.recall(taken);
    const nowMs = this.#options.clock.monotonicMs();
    for (let scope = 0; scope < taken.scopes; scope++) {
      const quotas = taken.masks[scope]! & ~DAY_BIT;
      if (quotas === 0) continue;
      this.#quotas.settle(this.#chain.links[scope]!.record, quotas, this.#held, this.#used, taken, nowMs);
      this.#mark(scope);
    }
  }

  #setHeld(hold: PicoUnits, tokens: number): void {
    this.#held.nanoUnits = nanoUnitsOf(hold);
    this.#held.tokens = tokens;
  }

  /** The account's call of the day, for a call that takes of nothing else. */
  #takeDay(scopes: CallScopes, needs: CallNeeds): Refusal | undefined {
    const dayNumber = this.#day.take(scopes.account, scopes.plan.callsPerDay);
    if (dayNumber === undefined) return this.#refuse(ACCOUNT_SCOPE, CALLS_PER_DAY, scopes, needs);
    this.#taken.dayNumber = dayNumber;
    return undefined;
  }

  /**
   * All that a call takes of its scopes but the hold and the account's calls in flight, of one day and month:
   * if midnight comes meanwhile, or a scope is a day ahead because the calendar was set back, it begins again
   * with the later day. Else what one scope holds in a day would be given back to the next.
   */
  #takeAll(scopes: CallScopes, needs: CallNeeds): Refusal | undefined {
    const taken = this.#taken;
    this.#setHeld(needs.hold, needs.tokens);
    taken.tokens = needs.tokens;
    this.#quotas.readPeriods(taken);
    this.#nowMs = this.#options.clock.monotonicMs();
    let all = 0;
    for (let scope = 0; scope < taken.scopes; scope++) all |= this.#chain.links[scope]!.mask;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const { day, month } = taken;
      const refusal = this.#takeEach(all, scopes, needs);
      if (refusal !== undefined || (taken.day === day && taken.month === month)) return refusal;
    }
    throw new Error('invariant broken: a call takes of one day and one month in bounded tries');
  }

  /** As `#takeAll`; takes nothing if it sets a later day or month. */
  #takeEach(all: number, scopes: CallScopes, needs: CallNeeds): Refusal | undefined {
    const taken = this.#taken;
    const { day, month } = taken;
    taken.dayNumber = AFTER_ALL_DAYS;
    for (const quota of ORDER) {
      const bit = quota === CALLS_PER_DAY ? DAY_BIT : 1 << quota;
      if ((all & bit) === 0) continue;
      for (let scope = 0; scope < taken.scopes; scope++) {
        if ((this.#chain.links[scope]!.mask & bit) === 0) continue;
        const took = quota === CALLS_PER_DAY ? this.#takeDayOf(scope, scopes) : this.#take(scope, quota);
        if (!took) {
          this.#giveBack(taken);
          return this.#refuse(scope, quota, scopes, needs);
        }
        if (taken.day === day && taken.month === month) continue;
        const later: Periods = { day: taken.day, month: taken.month };
        this.#quotas.release(this.#chain.links[scope]!.record, 1 << quota, this.#held, taken, this.#nowMs);
        taken.masks[scope]! &= ~(1 << quota);
        this.#giveBack(Object.assign(taken, { day, month }));
        Object.assign(taken, later).masks.fill(0);
        return undefined;
      }
    }
    return undefined;
  }

  /** Takes of one quota of one scope that has it. */
  #take(scope: number, quota: number): boolean {
    const taken = this.#taken;
    const { index, record, limits, first } = this.#chain.links[scope]!;
    const limit = limits[first + quota]!;
    if (!this.#quotas.take(record, quota, limit, this.#held, taken, this.#nowMs)) return false;
    taken.masks[scope]! |= 1 << quota;
    const { low } = this.#options;
    if (low !== undefined && this.#quotas.ranLow()) tell(low, scope, index);
    return true;
  }

  /** Takes a call of the day of one scope that has a limit. */
  #takeDayOf(scope: number, { account, plan }: CallScopes): boolean {
    const taken = this.#taken;
    const { index, callsPerDay } = this.#chain.links[scope]!;
    const dayNumber =
      scope === ACCOUNT_SCOPE
        ? this.#day.take(account, plan.callsPerDay)
        : this.#chain.limitedAt(scope).takeDay(index, callsPerDay);
    if (dayNumber === undefined) return false;
    // If midnight comes before the last of them is taken, those of the later day are not given back.
    taken.dayNumber = Math.min(taken.dayNumber, dayNumber);
    taken.masks[scope]! |= DAY_BIT;
    return true;
  }

  /** Comes last, because a request of a minute cannot be given back. */
  #takeModelMinute({ account, model }: CallScopes, needs: CallNeeds): Refusal | undefined {
    const { limits, modelIndex } = model!;
    const take = this.#options.models.takeMinute(this.#taken.model!, limits.requestsPerMinute!);
    if (take.admitted) return undefined;
    this.#balance.giveBack(account, needs.hold);
    this.#giveBack(this.#taken);
    const refusal = this.#refusal(modelIndex, 'requests_per_minute', BigInt(limits.requestsPerMinute!), 0n);
    return { ...refusal, kind: 'model', resetsMs: take.resetWallMs, asks: take.asks };
  }

  /**
   * Gives back all that is in `taken`, of amounts `#held` and scopes in the links of the chain, but the
   * account's hold and calls in flight.
   */
  #giveBack(taken: Taken): void {
    this.#giveBackDays(taken);
    if (taken.scopes === 0) return;
    const nowMs = this.#options.clock.monotonicMs();
    for (let scope = 0; scope < taken.scopes; scope++) {
      const quotas = taken.masks[scope]! & ~DAY_BIT;
      if (quotas === 0) continue;
      this.#quotas.release(this.#chain.links[scope]!.record, quotas, this.#held, taken, nowMs);
      this.#mark(scope);
    }
  }

  #giveBackDays(taken: Taken): void {
    const { account, masks, scopes, dayNumber } = taken;
    if (scopes === 0 || (masks[ACCOUNT_SCOPE]! & DAY_BIT) !== 0) this.#day.giveBack(account, dayNumber);
    for (let scope = 0; scope < scopes; scope++) {
      if (scope === ACCOUNT_SCOPE || (masks[scope]! & DAY_BIT) === 0) continue;
      this.#chain.limitedAt(scope).giveBackDay(this.#chain.links[scope]!.index, dayNumber);
    }
  }

  /** Accounts are marked by those who call this. */
  #mark(scope: number): void {
    if (scope !== ACCOUNT_SCOPE) this.#chain.limitedAt(scope).mark(this.#chain.links[scope]!.index);
  }

  /** A need that exceeds a limit is named first, whatever was refused. */
  #refuse(scope: number, quota: number | 'balance', scopes: CallScopes, needs: CallNeeds): Refusal {
    return this.#neverFits(scopes, needs) ?? this.#refusalOf(scope, quota, scopes, needs);
  }

  #neverFits(scopes: CallScopes, needs: CallNeeds): Refusal | undefined {
    this.#setHeld(needs.hold, needs.tokens);
    for (let scope = 0; scope < this.#taken.scopes; scope++) {
      const { mask, limits, first } = this.#chain.links[scope]!;
      for (let quota = 0; quota < QUOTA_COUNT; quota++) {
        if ((mask & (1 << quota)) === 0) continue;
        if (this.#quotas.needOf(quota, this.#held) <= limits[first + quota]!) continue;
        return { ...this.#quotaRefusal(scope, quota, scopes), never: true };
      }
    }
    return undefined;
  }

  #refusalOf(scope: number, quota: number | 'balance', scopes: CallScopes, needs: CallNeeds): Refusal {
    const { account, plan } = scopes;
    if (quota === 'balance') {
      return this.#refusal(account, 'balance', needs.hold, this.#balance.balance(account));
    }
    if (scope === ACCOUNT_SCOPE && quota === FLIGHT) {
      return this.#refusal(account, 'calls_in_flight', BigInt(plan.callsInFlightMax), 0n);
    }
    if (quota !== CALLS_PER_DAY) return this.#quotaRefusal(scope, quota, scopes);
    const { index, callsPerDay } = this.#chain.links[scope]!;
    const isOwn = scope === ACCOUNT_SCOPE;
    const { dayNumber } = isOwn ? this.#day.read(account) : this.#chain.limitedAt(scope).countsOf(index);
    return {
      ...this.#refusal(account, 'calls_per_day', BigInt(isOwn ? plan.callsPerDay : callsPerDay), 0n),
      ...this.#ownerOf(scope, scopes),
      resetsMs: resetOfDay(dayNumber, this.#options.clock.wallMs()),
    };
  }

  #quotaRefusal(scope: number, quota: number, scopes: CallScopes): Refusal {
    const { record, limits, first } = this.#chain.links[scope]!;
    const limit = limits[first + quota]!;
    const { left, resetsMs } = this.#quotas.leftOf(record, quota, limit, this.#held);
    const amounts = [limit, left].map((amount) => this.#quotas.amountIn(quota, amount));
    return {
      ...this.#refusal(0, EXTENDED_QUOTAS[quota]!, amounts[0]!, amounts[1]!),
      ...this.#ownerOf(scope, scopes),
      resetsMs,
    };
  }

  #ownerOf(scope: number, { account, model }: CallScopes): Pick<Refusal, 'kind' | 'index'> {
    if (scope === ACCOUNT_SCOPE) return { kind: 'account', index: account };
    if (scope === MODEL_SCOPE) return { kind: 'model', index: model!.modelIndex };
    return { kind: scope === KEY_SCOPE ? 'key' : 'group', index: this.#chain.links[scope]!.index };
  }

  /** Of the account; it may be tried again at once. */
  #refusal(index: number, quota: Refusal['quota'], limit: bigint, left: bigint): Refusal {
    const { clock, low } = this.#options;
    const resetsMs = asWallMs(clock.wallMs() + 1);
    return { kind: 'account', index, quota, limit, left, resetsMs, asks: low !== undefined, never: false };
  }
}

function tell(low: LowLeases, scope: number, index: number): void {
  if (scope === KEY_SCOPE) low.key(index as KeyIndex);
  else if (scope === ACCOUNT_SCOPE) low.account(index as AccountIndex);
  else if (scope === MODEL_SCOPE) low.model(index as ModelScopeIndex);
  else low.group(index as GroupIndex);
}
