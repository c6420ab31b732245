/**
 * What is left of the quotas that an admitted call counts toward, after it took its part: for the record of
 * the call. Pure; any thread.
 */
export interface QuotasLeft {
  /** Of the account's minute; undefined if there are several minutes, which are in `others` then. */
  readonly minute: number | undefined;
  /** The account's calls in flight. */
  readonly inFlight: number;
  /** The account's calls of the day. */
  readonly perDay: number;
  /** Pico-units, rounded as floats are above 2^53. */
  readonly balance: number;
  /**
   * Of other quotas, QUOTA_NUMBERS each: `quotaCode`, the slot of the scope, and what is left. Money is in
   * nano-units. Undefined if there are none.
   */
  readonly others: readonly number[] | undefined;
}

export const QUOTA_NUMBERS = 3;

const SCOPE_SHIFT = 8;
const NAME_MASK = 0xff;

/** `scope` as position in QUOTA_SCOPES, `name` in QUOTA_NAMES. */
export function quotaCode(scope: number, name: number): number {
  return (scope << SCOPE_SHIFT) | name;
}

export function scopeIndexOf(code: number): number {
  return code >> SCOPE_SHIFT;
}

export function nameIndexOf(code: number): number {
  return code & NAME_MASK;
}
