/**
 * Says why a call was not admitted: which quota of which scope, how much is left, and when a call may come
 * again. `Calls` has a QuotaRejections for each thread and asks it when a take fails;
 * request/quota-rejections.ts turns the result into the caller's error. Only rejected calls come here, so
 * results are allocated. Any thread.
 *
 * Must hold: a call that can never fit a limit gets `canNeverFit`, whatever else is used up, because waiting
 * would not help (test/unit/ledger/quotas.test.ts: a call that can never fit is told so). A rejection after a
 * refusal names a quota that was refused and that the call still takes of. Further test, of each quota with
 * each other: test/unit/request/refusals.test.ts.
 */
import type { Clock } from '../core/clock.js';
import { QUOTA_SCOPES, type QuotaName, type QuotaScope } from '../core/quotas.js';
import { asWallMs, type PicoUnits, type WallMs } from '../core/units.js';
import type { Balance } from './balance.js';
import { type DayCounter, resetOfDay } from './day.js';
import {
  CALLS_IN_FLIGHT,
  EXTENDED_QUOTAS,
  type OnLowLease,
  type QuotaNumber,
  TOKENS_PER_MINUTE,
} from './layout.js';
import { NUMBERED_QUOTAS } from './quota-records.js';
import {
  ACCOUNT_SCOPE,
  DAY_BIT,
  FIRST_SCOPE,
  kindIndexOf,
  MODEL_SCOPE,
  SCOPES_MAX,
  type ScopePosition,
} from './reservations.js';
import type { CallScopes, ScopeChain } from './scope-chain.js';
import { createAmounts, nanoUnitsOf, type ScopeQuotas, setAmounts } from './scope-quotas.js';
import type { MinuteTake } from './window.js';

export interface CallNeeds {
  /** What the call may cost at worst. */
  readonly hold: PicoUnits;
  /** The most tokens that the call may use. 0: it is admitted while any are left, and counts at its end. */
  readonly tokens: number;
  /** The call costs nothing (door.isFree), and takes of calls in flight and the model's minute alone. */
  readonly isFree?: true;
}

/** Why a call was not admitted. `limit` and `left` are requests, calls, tokens or pico-units. */
export interface QuotaRejection {
  readonly kind: QuotaScope;
  /** The slot of the key, the account or the group; of a model's rule, the model's index in the catalogue. */
  readonly index: number;
  /** `scopes`: all quota records are in use, so this scope's quotas cannot be counted. */
  readonly quota: QuotaName | 'balance' | 'scopes';
  /** The limit of the quota; if the balance was too small, what the call would have held. */
  readonly limit: bigint;
  readonly left: bigint;
  /** When a call may be admitted again, as far as that is known (wall clock). */
  readonly resetsMs: WallMs;
  /** Whether the coordinator may have more: then the listener asks before it rejects the call. */
  readonly mayAskForMore: boolean;
  /** Whether the call needs more than the limit, so that it would be rejected at any time. */
  readonly canNeverFit: boolean;
}

/** A quota that refuses a call: the coordinator had too little left. `index`: of a model's rule, its slot. */
export interface RefusedQuota {
  readonly kind: QuotaScope | 'upstream';
  readonly index: number;
  readonly quota: QuotaName | 'balance';
}

/** The number by which calls a day are named; the extended quotas are numbered from 0. */
export const CALLS_PER_DAY = -1;
type OrderedQuota = QuotaNumber | typeof CALLS_PER_DAY;
/** The order in which admission takes: extended quotas by number, calls a day after tokens a minute. */
export const QUOTA_ORDER: readonly OrderedQuota[] = NUMBERED_QUOTAS.flatMap(([quota]) =>
  quota === TOKENS_PER_MINUTE ? [quota, CALLS_PER_DAY] : [quota],
);

const nameOf = (quota: OrderedQuota | 'balance'): QuotaName | 'balance' =>
  quota === 'balance' ? quota : quota === CALLS_PER_DAY ? 'calls_per_day' : EXTENDED_QUOTAS[quota]!;

export const kindOf = (scope: ScopePosition): QuotaScope => QUOTA_SCOPES[kindIndexOf(scope)]!;

export interface QuotaRejectionsOptions {
  readonly quotas: ScopeQuotas;
  readonly day: DayCounter;
  readonly balance: Balance;
  readonly clock: Clock;
  /** Asks the lease manager for more; undefined unless limits are shared. */
  readonly onLowLease: OnLowLease | undefined;
}

export class QuotaRejections {
  readonly #options: QuotaRejectionsOptions;
  readonly #chain: ScopeChain;
  /** Scratch: what the rejected call needs. `#neverFits` sets it, before anything reads it. */
  readonly #needs = createAmounts(1);

  constructor(options: QuotaRejectionsOptions, chain: ScopeChain) {
    this.#options = options;
    this.#chain = chain;
  }

  /**
   * The rejection of a call that could not take `quota` of `scope`. If some other limit is one that the call
   * can never fit, the rejection names that limit instead.
   */
  rejectionOf(
    scope: ScopePosition,
    quota: OrderedQuota | 'balance',
    scopes: CallScopes,
    needs: CallNeeds,
  ): QuotaRejection {
    const neverFits = this.#neverFits(scopes, needs);
    if (neverFits !== undefined) return neverFits;
    const { account, plan } = scopes;
    if (quota === 'balance') {
      return this.ofAccount(account, 'balance', needs.hold, this.#options.balance.balance(account));
    }
    if (scope === ACCOUNT_SCOPE && quota === CALLS_IN_FLIGHT) {
      return this.ofAccount(account, 'calls_in_flight', BigInt(plan.callsInFlightMax), 0n);
    }
    if (quota !== CALLS_PER_DAY) return this.#quotaRejection(scope, quota, scopes);
    const { index, callsPerDay } = this.#chain.links[scope]!;
    const isAccount = scope === ACCOUNT_SCOPE;
    const { dayNumber } = isAccount
      ? this.#options.day.read(account)
      : this.#chain.limitedAt(scope).countsOf(index);
    return {
      ...this.ofAccount(account, 'calls_per_day', BigInt(isAccount ? plan.callsPerDay : callsPerDay), 0n),
      ...this.#ownerOf(scope, scopes),
      resetsMs: resetOfDay(dayNumber, this.#options.clock.wallMs()),
    };
  }

  /**
   * The rejection that the caller of a just rejected call is told. Without `refused` it is `rejection`. Else
   * it names a quota of `refused`: that of `rejection` if it is one of them, or the first in the order of
   * admission. Of any other quota there was enough, and other calls took it before this one could. Undefined
   * if all limits of `refused` were removed since.
   */
  refusalOf(
    rejection: QuotaRejection,
    refused: readonly RefusedQuota[] | undefined,
    scopes: CallScopes,
    needs: CallNeeds,
  ): QuotaRejection | undefined {
    const { kind, index, quota, mayAskForMore, canNeverFit } = rejection;
    const isRefused = (name: string, of: string, group: number): boolean =>
      refused!.some(
        (one) => one.quota === name && one.kind === of && (of !== 'group' || one.index === group),
      );
    if (refused === undefined || !mayAskForMore || canNeverFit || isRefused(quota, kind, index))
      return rejection;
    for (const number of [...QUOTA_ORDER, 'balance'] as const) {
      const name = nameOf(number);
      for (let scope = FIRST_SCOPE; scope < SCOPES_MAX; scope++) {
        const link = this.#chain.links[scope]!;
        if (isRefused(name, kindOf(scope), link.index) && this.#isLimited(scope, number))
          return this.rejectionOf(scope, number, scopes, needs);
      }
    }
    const { model } = scopes;
    const limit = model?.limits.requestsPerMinute;
    const { index: slot } = this.#chain.links[MODEL_SCOPE]!;
    if (limit === undefined || !isRefused('requests_per_minute', 'model', slot)) return undefined;
    const check = this.#chain.limitedAt(MODEL_SCOPE).minute.check(slot, limit);
    const named = this.ofModelMinute(model!, check);
    // If permits are free by now, `check` tells when all used ones will have expired: too late for a reset.
    return check.admitted ? { ...named, resetsMs: asWallMs(this.#options.clock.wallMs() + 1) } : named;
  }

  /** Whether the call takes of that quota. Its limit may have been removed since the coordinator refused. */
  #isLimited(scope: ScopePosition, quota: OrderedQuota | 'balance'): boolean {
    if (quota === 'balance') return true;
    if (scope === ACCOUNT_SCOPE && (quota === CALLS_IN_FLIGHT || quota === CALLS_PER_DAY)) return true;
    const bit = quota === CALLS_PER_DAY ? DAY_BIT : 1 << quota;
    return scope < this.#chain.taken.scopeCount && (this.#chain.links[scope]!.mask & bit) !== 0;
  }

  #neverFits(scopes: CallScopes, needs: CallNeeds): QuotaRejection | undefined {
    setAmounts(this.#needs, needs.tokens, nanoUnitsOf(needs.hold));
    for (let scope = FIRST_SCOPE; scope < this.#chain.taken.scopeCount; scope++) {
      const { mask, limits, firstLimit } = this.#chain.links[scope]!;
      for (const [quota] of NUMBERED_QUOTAS) {
        if ((mask & (1 << quota)) === 0) continue;
        if (this.#needs[quota]! <= limits[firstLimit + quota]!) continue;
        return { ...this.#quotaRejection(scope, quota, scopes), canNeverFit: true };
      }
    }
    return undefined;
  }

  /** The rejection by an extended quota. The index 0 for `ofAccount` is replaced by that of `#ownerOf`. */
  #quotaRejection(scope: ScopePosition, quota: QuotaNumber, scopes: CallScopes): QuotaRejection {
    const { record, limits, firstLimit } = this.#chain.links[scope]!;
    const limit = limits[firstLimit + quota]!;
    const { quotas } = this.#options;
    const { left, resetsMs } = quotas.leftOf(record, quota, limit, this.#needs);
    const amountIn = (amount: number): bigint => quotas.amountIn(quota, amount);
    return {
      ...this.ofAccount(0, EXTENDED_QUOTAS[quota]!, amountIn(limit), amountIn(left)),
      ...this.#ownerOf(scope, scopes),
      resetsMs,
    };
  }

  /** The chain has a scope of the kind `model` only if the call has a `model`, so the `!` is safe. */
  #ownerOf(scope: ScopePosition, { account, model }: CallScopes): Pick<QuotaRejection, 'kind' | 'index'> {
    const kind = kindOf(scope);
    if (kind === 'account') return { kind, index: account };
    if (kind === 'model') return { kind, index: model!.modelIndex };
    return { kind, index: this.#chain.links[scope]!.index };
  }

  /** The rejection of a call that found no request of the model's minute, which is limited (calls.ts). */
  ofModelMinute(
    { limits, modelIndex }: NonNullable<CallScopes['model']>,
    { resetWallMs, mayAskForMore }: MinuteTake,
  ): QuotaRejection {
    const rejection = this.ofAccount(
      modelIndex,
      'requests_per_minute',
      BigInt(limits.requestsPerMinute!),
      0n,
    );
    return { ...rejection, kind: 'model', resetsMs: resetWallMs, mayAskForMore };
  }

  /** A rejection by the account's own quota or balance, with a reset at once. Others override its fields. */
  ofAccount(index: number, quota: QuotaRejection['quota'], limit: bigint, left: bigint): QuotaRejection {
    const { clock, onLowLease } = this.#options;
    const resetsMs = asWallMs(clock.wallMs() + 1);
    const mayAskForMore = onLowLease !== undefined;
    return { kind: 'account', index, quota, limit, left, resetsMs, mayAskForMore, canNeverFit: false };
  }
}
