/**
 * What is left of each quota that a call takes of, right after it took. `Calls` (calls.ts) fills it while it
 * admits a call. The listener then reads it for the record of the call (`QuotasLeft`) and for the response
 * headers that tell a caller how many tokens are left. Each thread's `Calls` has one.
 *
 * Must hold: an entry is read only if `taken` says that this call took of that quota, because nothing is
 * cleared between calls. No unit test; test/e2e/quotas.test.ts and test/e2e/upstream-headers.test.ts see the
 * numbers that callers get.
 */
import { QUOTA_NAMES, QUOTA_NUMBERS, quotaCode, type QuotasLeft } from '../core/quotas.js';
import type { AccountIndex } from '../core/units.js';
import type { Balance } from './balance.js';
import { EXTENDED_QUOTAS, lowestBitOf } from './layout.js';
import { numberOf } from './packed-words.js';
import { ACCOUNT_SCOPE, DAY_BIT, GROUP_SCOPE, MODEL_SCOPE, SCOPES_MAX, type Taken } from './reservations.js';
import type { ScopeChain } from './scope-chain.js';
import { createTightest } from './scope-quotas.js';

const CALLS_PER_DAY = QUOTA_NAMES.indexOf('calls_per_day');
const REQUESTS_PER_MINUTE = QUOTA_NAMES.indexOf('requests_per_minute');
const NAME_OF_EXTENDED = EXTENDED_QUOTAS.map((name) => QUOTA_NAMES.indexOf(name));
/** Calls a day, after the numbers of the extended quotas. */
const DAY = EXTENDED_QUOTAS.length;
const QUOTAS = DAY + 1;

export class CallLeft {
  /** How many more calls the account may have in flight, and may make today. */
  inFlight = 0;
  perDay = 0;
  /** Requests left of the minute of the plan's rule for the model; undefined if there is no rule. */
  modelMinute: number | undefined = undefined;
  /** Of the scopes whose tokens of the minute the call took. */
  readonly tightest = createTightest();
  readonly #balance: Balance;
  readonly #chain: ScopeChain;
  readonly #taken: Taken;
  /** By scope and quota. */
  readonly #left = new Float64Array(SCOPES_MAX * QUOTAS);
  /** Scratch for `others`. Filled with fractions, so that V8 keeps an array of floats. */
  readonly #others = new Array<number>(QUOTA_NUMBERS * SCOPES_MAX * (QUOTAS + 1)).fill(0.5);

  /** `chain` and `taken` are of the call that is being admitted. */
  constructor(balance: Balance, chain: ScopeChain, taken: Taken) {
    this.#balance = balance;
    this.#chain = chain;
    this.#taken = taken;
  }

  /** A take of the call left `left` of an extended quota; `scope` is a position in the chain. */
  set(scope: number, quota: number, left: number): void {
    this.#left[scope * QUOTAS + quota] = left;
  }

  /** As `set`, of calls a day. */
  setDay(scope: number, left: number): void {
    if (scope === ACCOUNT_SCOPE) this.perDay = left;
    else this.#left[scope * QUOTAS + DAY] = left;
  }

  /**
   * Returns what the last admitted call left. The rate-limit phase knows the requests left of the minute:
   * `minute` if only the account has a limit, else `minutes`, in triples as `others` (core/quotas.ts).
   */
  read(
    account: AccountIndex,
    minute: number | undefined,
    minutes: readonly number[] | undefined,
  ): QuotasLeft {
    const { inFlight, perDay } = this;
    const balance = numberOf(this.#balance.balance(account));
    const hasOthers = this.#taken.scopes > 0 || minutes !== undefined || this.modelMinute !== undefined;
    return { minute, inFlight, perDay, balance, others: hasOthers ? this.#read(minutes) : undefined };
  }

  #read(minutes: readonly number[] | undefined): number[] {
    const others = this.#others;
    let count = 0;
    if (minutes !== undefined) for (const number of minutes) others[count++] = number;
    for (let scope = 0; scope < this.#taken.scopes; scope++) {
      const mask = this.#taken.masks[scope]!;
      const { index } = this.#chain.links[scope]!;
      const kind = Math.min(scope, GROUP_SCOPE);
      const first = scope * QUOTAS;
      for (let bits = mask & ~DAY_BIT; bits !== 0; bits &= bits - 1) {
        const quota = lowestBitOf(bits);
        others[count++] = quotaCode(kind, NAME_OF_EXTENDED[quota]!);
        others[count++] = index;
        others[count++] = this.#left[first + quota]!;
      }
      if (scope === ACCOUNT_SCOPE || (mask & DAY_BIT) === 0) continue;
      others[count++] = quotaCode(kind, CALLS_PER_DAY);
      others[count++] = index;
      others[count++] = this.#left[first + DAY]!;
    }
    if (this.modelMinute !== undefined) {
      others[count++] = quotaCode(MODEL_SCOPE, REQUESTS_PER_MINUTE);
      others[count++] = 0;
      others[count++] = this.modelMinute;
    }
    return others.slice(0, count);
  }
}
