/**
 * Records what each take of a call left of its quota. calls.ts has one CallLeft a thread, fills it while a
 * call is admitted, then reads it for the call's record (QuotasLeft) and for the response headers about
 * tokens. Listener thread.
 *
 * Must hold: `#left` is read only where `taken` says that this call took of that quota, because nothing is
 * cleared between calls. Further tests, of the numbers that callers get: test/e2e/quotas.test.ts,
 * test/e2e/upstream-headers.test.ts.
 */
import { NUMBERS_PER_QUOTA, quotaCode, type QuotasLeft } from '../core/quotas-left.js';
import { QUOTA_NAMES } from '../core/quotas.js';
import type { AccountIndex } from '../core/units.js';
import type { Balance } from './balance.js';
import { EXTENDED_QUOTAS, lowestQuotaOf, type QuotaNumber, TOKENS_PER_MINUTE } from './layout.js';
import { numberOf } from './packed-words.js';
import {
  ACCOUNT_SCOPE,
  DAY_BIT,
  FIRST_SCOPE,
  kindIndexOf,
  MODEL_SCOPE,
  SCOPES_MAX,
  type ScopePosition,
} from './reservations.js';
import type { ScopeChain } from './scope-chain.js';
import { createTightest, tighten } from './scope-quotas.js';

const CALLS_PER_DAY = QUOTA_NAMES.indexOf('calls_per_day');
const REQUESTS_PER_MINUTE = QUOTA_NAMES.indexOf('requests_per_minute');
const NAME_OF_EXTENDED = EXTENDED_QUOTAS.map((name) => QUOTA_NAMES.indexOf(name));
/** The index of calls a day in `#left`, after the extended quotas. */
const DAY_QUOTA = EXTENDED_QUOTAS.length;
const QUOTAS_PER_SCOPE = DAY_QUOTA + 1;

export class CallLeft {
  /** How many more calls the account may have in flight, and may make today. `Calls` sets both. */
  inFlight = 0;
  perDay = 0;
  /** Requests left of the minute of the plan's rule for the model; undefined if no rule limits them. */
  modelMinute: number | undefined = undefined;
  /**
   * The scope with the fewest tokens of its minute left. Rules for models are left out, as in `tokenMinuteOf`
   * of ledger.ts: both are for the same response headers.
   */
  readonly tightest = createTightest();
  readonly #balance: Balance;
  readonly #chain: ScopeChain;
  /** What is left of `quota` of `scope`, at scope × QUOTAS_PER_SCOPE + quota. Money in nano-units. */
  readonly #left = new Float64Array(SCOPES_MAX * QUOTAS_PER_SCOPE);
  /** Scratch of `#othersLeft`. Filled with fractions, so that V8 stores plain floats from the start. */
  readonly #triples = new Array<number>(NUMBERS_PER_QUOTA * SCOPES_MAX * (QUOTAS_PER_SCOPE + 1)).fill(0.5);

  constructor(balance: Balance, chain: ScopeChain) {
    this.#balance = balance;
    this.#chain = chain;
  }

  /** Called before the takes of a call, and again before each further try of them. */
  begin(): void {
    this.modelMinute = undefined;
    this.tightest.limit = 0; // no scope yet
  }

  /** Records what a take left of an extended quota. `limit` and `record`: of the scope's quota. */
  set(scope: ScopePosition, quota: QuotaNumber, left: number, limit: number, record: number): void {
    this.#left[scope * QUOTAS_PER_SCOPE + quota] = left;
    if (quota === TOKENS_PER_MINUTE && scope !== MODEL_SCOPE) tighten(this.tightest, limit, left, record);
  }

  /** As `set`, for calls a day. Those of the account have a field of their own in QuotasLeft. */
  setDay(scope: ScopePosition, left: number): void {
    if (scope === ACCOUNT_SCOPE) this.perDay = left;
    else this.#left[scope * QUOTAS_PER_SCOPE + DAY_QUOTA] = left;
  }

  /**
   * Returns what the last admitted call left. The requests left of the minute come from the rate-limit phase:
   * `minute` if only the account has a limit, else `minutes`, in triples like QuotasLeft.others.
   */
  read(
    account: AccountIndex,
    minute: number | undefined,
    minutes: readonly number[] | undefined,
  ): QuotasLeft {
    const { inFlight, perDay } = this;
    const balance = numberOf(this.#balance.balance(account));
    const hasOthers =
      this.#chain.taken.scopeCount > 0 || minutes !== undefined || this.modelMinute !== undefined;
    return { minute, inFlight, perDay, balance, others: hasOthers ? this.#othersLeft(minutes) : undefined };
  }

  /** QuotasLeft.others: `minutes`, then a triple (code, slot, left) for each quota that the call took of. */
  #othersLeft(minutes: readonly number[] | undefined): number[] {
    const triples = this.#triples;
    let count = 0;
    if (minutes !== undefined) for (const number of minutes) triples[count++] = number;
    for (let scope = FIRST_SCOPE; scope < this.#chain.taken.scopeCount; scope++) {
      const mask = this.#chain.taken.masks[scope]!;
      const { index } = this.#chain.links[scope]!;
      const kind = kindIndexOf(scope);
      const first = scope * QUOTAS_PER_SCOPE;
      for (let bits = mask & ~DAY_BIT; bits !== 0; bits &= bits - 1) {
        const quota = lowestQuotaOf(bits);
        triples[count++] = quotaCode(kind, NAME_OF_EXTENDED[quota]!);
        triples[count++] = index;
        triples[count++] = this.#left[first + quota]!;
      }
      if (scope === ACCOUNT_SCOPE || (mask & DAY_BIT) === 0) continue;
      triples[count++] = quotaCode(kind, CALLS_PER_DAY);
      triples[count++] = index;
      triples[count++] = this.#left[first + DAY_QUOTA]!;
    }
    // 0 stands for the slot, because gateway/call-lines.ts takes the model from the call's record.
    if (this.modelMinute !== undefined) {
      triples[count++] = quotaCode(MODEL_SCOPE, REQUESTS_PER_MINUTE);
      triples[count++] = 0;
      triples[count++] = this.modelMinute;
    }
    return triples.slice(0, count);
  }
}
