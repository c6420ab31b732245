/**
 * What is left of the quotas that an admitted call counts toward, after it took its part: for the record of
 * the call. `Calls` makes one for each thread. Any thread.
 */
import { QUOTA_NAMES } from '../core/quotas.js';
import type { Balance } from './balance.js';
import type { DayCounter } from './day.js';
import { BESIDE_WORDS64, EXTENDED_QUOTAS, FLIGHT } from './layout.js';
import { ACCOUNT_SCOPE, DAY_BIT, GROUP_SCOPE, MODEL_SCOPE, type Taken } from './reservations.js';
import type { CallScopes, ScopeChain } from './scope-chain.js';
import type { Amounts, ScopeQuotas } from './scope-quotas.js';
import { NO_PERIOD, type Stocks } from './stocks.js';

export interface QuotasLeft {
  /** The account's calls in flight. */
  readonly inFlight: number;
  /** The account's calls of the day. */
  readonly perDay: number;
  /** Pico-units, rounded as floats are above 2^53. */
  readonly balance: number;
  /**
   * Of other quotas, three numbers each: QUOTA_SCOPES' position and QUOTA_NAMES' position (one number, see
   * `quotaCode`), the slot of the scope, and what is left. Money is in nano-units. Undefined if there are
   * none.
   */
  readonly others: readonly number[] | undefined;
}

const SCOPE_SHIFT = 8;
const NAME_MASK = 0xff;
const CALLS_PER_DAY = QUOTA_NAMES.indexOf('calls_per_day');
const REQUESTS_PER_MINUTE = QUOTA_NAMES.indexOf('requests_per_minute');
const NAME_OF_EXTENDED = EXTENDED_QUOTAS.map((name) => QUOTA_NAMES.indexOf(name));
const NO_AMOUNTS: Amounts = { tokens: 0, nanoUnits: 0 };

/** `scope` as position in QUOTA_SCOPES, `name` in QUOTA_NAMES. */
export function quotaCode(scope: number, name: number): number {
  return (scope << SCOPE_SHIFT) | name;
}

export function scopeOfCode(code: number): number {
  return code >> SCOPE_SHIFT;
}

export function nameOfCode(code: number): number {
  return code & NAME_MASK;
}

interface LeftOptions {
  readonly flights: Stocks;
  readonly day: DayCounter;
  readonly balance: Balance;
  readonly quotas: ScopeQuotas;
}

export class QuotasLeftReader {
  readonly #options: LeftOptions;
  readonly #chain: ScopeChain;
  readonly #taken: Taken;

  /** `chain` and `taken` are of the call that was admitted last. */
  constructor(options: LeftOptions, chain: ScopeChain, taken: Taken) {
    this.#options = options;
    this.#chain = chain;
    this.#taken = taken;
  }

  /** `modelMinute`: what is left of the model's minute, if there is a rule for it. */
  read({ account, plan }: CallScopes, modelMinute: number | undefined): QuotasLeft {
    const { flights, day, balance } = this.#options;
    const taken = this.#taken;
    return {
      inFlight: flights.leftOf(account * BESIDE_WORDS64 + FLIGHT, NO_PERIOD, plan.callsInFlightMax).left,
      perDay: day.leftOf(account, taken.dayNumber, plan.callsPerDay),
      balance: Number(balance.balance(account)),
      others: taken.scopes === 0 ? undefined : this.#others(modelMinute),
    };
  }

  #others(modelMinute: number | undefined): number[] {
    const { quotas } = this.#options;
    const left: number[] = [];
    for (let scope = 0; scope < this.#taken.scopes; scope++) {
      const { index, record, mask, limits, first, callsPerDay } = this.#chain.links[scope]!;
      const kind = Math.min(scope, GROUP_SCOPE);
      for (let quota = 0; quota < EXTENDED_QUOTAS.length; quota++) {
        if ((mask & (1 << quota)) === 0) continue;
        const amount = quotas.leftOf(record, quota, limits[first + quota]!, NO_AMOUNTS).left;
        left.push(quotaCode(kind, NAME_OF_EXTENDED[quota]!), index, amount);
      }
      if (scope === ACCOUNT_SCOPE || (mask & DAY_BIT) === 0) continue;
      const { dayCalls } = this.#chain.limitedAt(scope).countsOf(index);
      left.push(quotaCode(kind, CALLS_PER_DAY), index, Math.max(0, callsPerDay - dayCalls));
    }
    if (modelMinute !== undefined) left.push(quotaCode(MODEL_SCOPE, REQUESTS_PER_MINUTE), 0, modelMinute);
    return left;
  }
}
