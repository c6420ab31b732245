/**
 * What a refused call is told: which quota of which scope, how much is left, and when it may come again.
 * `Calls` makes one for each thread. Any thread.
 */
import type { Clock } from '../core/clock.js';
import type { QuotaName } from '../core/quotas.js';
import { asWallMs, type PicoUnits, type WallMs } from '../core/units.js';
import type { Balance } from './balance.js';
import type { OnLowLease } from './counters.js';
import { type DayCounter, resetOfDay } from './day.js';
import { EXTENDED_QUOTAS } from './layout.js';
import { ACCOUNT_SCOPE, KEY_SCOPE, MODEL_SCOPE, type Taken } from './reservations.js';
import type { CallScopes, ScopeChain } from './scope-chain.js';
import { createAmounts, nanoUnitsOf, type ScopeQuotas, setAmounts } from './scope-quotas.js';

export interface CallNeeds {
  /** What the call may cost. */
  readonly hold: PicoUnits;
  /** What it may use; 0: it is admitted as long as any are left, and counts when it ends. */
  readonly tokens: number;
  /** It counts toward calls in flight and the model's minute alone, so it has neither a hold nor tokens. */
  readonly isFree?: true;
}

/** Why a call was not admitted. Amounts of money are in pico-units. */
export interface QuotaRejection {
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

/** In place of the number of an extended quota. */
export const CALLS_PER_DAY = -1;
export const FLIGHT = EXTENDED_QUOTAS.indexOf('calls_in_flight');
const QUOTA_COUNT = EXTENDED_QUOTAS.length;

export interface QuotaRejectionsOptions {
  readonly quotas: ScopeQuotas;
  readonly day: DayCounter;
  readonly balance: Balance;
  readonly clock: Clock;
  /** Undefined unless limits are shared. */
  readonly low: OnLowLease | undefined;
}

export class QuotaRejections {
  readonly #options: QuotaRejectionsOptions;
  readonly #chain: ScopeChain;
  readonly #taken: Taken;
  readonly #needs = createAmounts(1);

  /** `chain` and `taken` are of the call that is being admitted. */
  constructor(options: QuotaRejectionsOptions, chain: ScopeChain, taken: Taken) {
    this.#options = options;
    this.#chain = chain;
    this.#taken = taken;
  }

  /** A need that exceeds a limit is named first, whatever was refused. */
  of(scope: number, quota: number | 'balance', scopes: CallScopes, needs: CallNeeds): QuotaRejection {
    return this.#neverFits(scopes, needs) ?? this.#rejectionOf(scope, quota, scopes, needs);
  }

  #neverFits(scopes: CallScopes, needs: CallNeeds): QuotaRejection | undefined {
    setAmounts(this.#needs, needs.tokens, nanoUnitsOf(needs.hold));
    for (let scope = 0; scope < this.#taken.scopes; scope++) {
      const { mask, limits, first } = this.#chain.links[scope]!;
      for (let quota = 0; quota < QUOTA_COUNT; quota++) {
        if ((mask & (1 << quota)) === 0) continue;
        if (this.#needs[quota]! <= limits[first + quota]!) continue;
        return { ...this.#quotaRejection(scope, quota, scopes), never: true };
      }
    }
    return undefined;
  }

  #rejectionOf(
    scope: number,
    quota: number | 'balance',
    scopes: CallScopes,
    needs: CallNeeds,
  ): QuotaRejection {
    const { account, plan } = scopes;
    if (quota === 'balance') {
      return this.plain(account, 'balance', needs.hold, this.#options.balance.balance(account));
    }
    if (scope === ACCOUNT_SCOPE && quota === FLIGHT) {
      return this.plain(account, 'calls_in_flight', BigInt(plan.callsInFlightMax), 0n);
    }
    if (quota !== CALLS_PER_DAY) return this.#quotaRejection(scope, quota, scopes);
    const { index, callsPerDay } = this.#chain.links[scope]!;
    const isOwn = scope === ACCOUNT_SCOPE;
    const { dayNumber } = isOwn
      ? this.#options.day.read(account)
      : this.#chain.limitedAt(scope).countsOf(index);
    return {
      ...this.plain(account, 'calls_per_day', BigInt(isOwn ? plan.callsPerDay : callsPerDay), 0n),
      ...this.#ownerOf(scope, scopes),
      resetsMs: resetOfDay(dayNumber, this.#options.clock.wallMs()),
    };
  }

  #quotaRejection(scope: number, quota: number, scopes: CallScopes): QuotaRejection {
    const { record, limits, first } = this.#chain.links[scope]!;
    const limit = limits[first + quota]!;
    const { left, resetsMs } = this.#options.quotas.leftOf(record, quota, limit, this.#needs);
    const amounts = [limit, left].map((amount) => this.#options.quotas.amountIn(quota, amount));
    return {
      ...this.plain(0, EXTENDED_QUOTAS[quota]!, amounts[0]!, amounts[1]!),
      ...this.#ownerOf(scope, scopes),
      resetsMs,
    };
  }

  #ownerOf(scope: number, { account, model }: CallScopes): Pick<QuotaRejection, 'kind' | 'index'> {
    if (scope === ACCOUNT_SCOPE) return { kind: 'account', index: account };
    if (scope === MODEL_SCOPE) return { kind: 'model', index: model!.modelIndex };
    return { kind: scope === KEY_SCOPE ? 'key' : 'group', index: this.#chain.links[scope]!.index };
  }

  /** Of the account; it may be tried again at once. */
  plain(index: number, quota: QuotaRejection['quota'], limit: bigint, left: bigint): QuotaRejection {
    const { clock, low } = this.#options;
    const resetsMs = asWallMs(clock.wallMs() + 1);
    return { kind: 'account', index, quota, limit, left, resetsMs, asks: low !== undefined, never: false };
  }
}
