/**
 * What is left of the quotas that an admitted call counts toward, after the call took its part. The ledger
 * fills it (ledger/call-left.ts), telemetry/call-ring.ts carries it, and gateway/call-lines.ts writes it into
 * the record of the call. Pure; any thread.
 */
export interface QuotasLeft {
  /** Requests left of the account's minute; undefined if several scopes limit the minute (see `others`). */
  readonly minute: number | undefined;
  /** Calls in flight that the account may still begin. */
  readonly inFlight: number;
  /** Calls left of the account's day. */
  readonly perDay: number;
  /** Pico-units, rounded as floats are above 2^53. */
  readonly balance: number;
  /**
   * All other quotas, flat, QUOTA_NUMBERS numbers each: `quotaCode`, the slot of the scope, what is left
   * (money in nano-units). Undefined if there are none.
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
