/**
 * What is left of the quotas of an admitted call, as numbers. The ledger fills it (ledger/call-left.ts), the
 * call ring (telemetry/call-ring-layout.ts) carries it, and gateway/call-lines.ts writes it into the record
 * of the call. Pure; any thread.
 *
 * Must hold: a code is in the memory of one process alone, because its form may change from build to build.
 * Tests: test/unit/ledger/call-left.test.ts, test/unit/gateway/call-lines.test.ts.
 */
import { invariant } from './errors.js';
import { QUOTA_NAMES } from './quotas.js';

/**
 * What is left of the quotas that an admitted call counts toward, after the call took of them. `minute`,
 * `inFlight` and `perDay` are whole numbers from 0 to the highest limits of plans (limits.ts), all below
 * 2^31: the call ring has 32 bits for each, and -1 for none (test/unit/telemetry/call-ring-layout.test.ts).
 */
export interface QuotasLeft {
  /** Requests left of the account's minute; undefined if several scopes limit it: `others` has each. */
  readonly minute: number | undefined;
  /** Calls that the account may have in flight besides the present ones. Every account has such a limit. */
  readonly inFlight: number;
  /** Calls left of the account's day, of which every account has a limit too. */
  readonly perDay: number;
  /** Pico-units, rounded as floats are above 2^53. */
  readonly balance: number;
  /**
   * All other quotas in one flat list, each as NUMBERS_PER_QUOTA numbers: `quotaCode`, the slot of the scope
   * (both 32 bits), what is left (money in nano-units; a float). Undefined if there are no others.
   */
  readonly others: readonly number[] | undefined;
}

/** How many numbers each quota takes in `others`. */
export const NUMBERS_PER_QUOTA = 3;

/** The low 8 bits of a quota's code are the position of its name, the bits above that of its scope. */
const SCOPE_SHIFT = 8;
const NAME_MASK = 0xff;
invariant(QUOTA_NAMES.length <= NAME_MASK + 1, 'the position of a name fits its bits');

/** A quota of a scope as one number: of its positions in QUOTA_SCOPES and in QUOTA_NAMES (quotas.ts). */
export function quotaCode(scopeIndex: number, nameIndex: number): number {
  return (scopeIndex << SCOPE_SHIFT) | nameIndex;
}

/** Position in QUOTA_SCOPES of a `quotaCode`. */
export function scopeIndexOf(code: number): number {
  return code >> SCOPE_SHIFT;
}

/** Position in QUOTA_NAMES of a `quotaCode`. */
export function nameIndexOf(code: number): number {
  return code & NAME_MASK;
}
