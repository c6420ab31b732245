/**
 * The quotas that a scope may have, by name, and what is left of them. A scope is a key, an account, one
 * model for an account, a group of accounts or an upstream. Most folders use the names. Pure; any thread.
 *
 * A quota is one of two primitives. A sliding window counts what any 60 seconds have used. A stock is an
 * amount that calls take of: calendar.ts refills that of a day or a month, and each call gives its slot in
 * flight back. Each admitted call reserves its worst case of every quota of every scope that it counts
 * toward, or of none; settling replaces the reservation by what the call used.
 *
 * A list below that lacks a quota does not compile. The order of the names may change from build to build:
 * only shared memory has positions in QUOTA_NAMES. Files on disk have the names, so no name may change.
 *
 * Must hold: a quota of which anything is left is below 100 %.
 */
import { CALLS_IN_FLIGHT_MAX, CALLS_PER_DAY_MAX, REQUESTS_PER_MINUTE_MAX } from './limits.js';
import { BALANCE_PICO_UNITS_MAX, picoUnitsOfExact } from './money.js';
import { asPicoUnits, type PicoUnits } from './units.js';

interface QuotaKind {
  readonly unit: 'requests' | 'calls' | 'tokens' | 'money';
  /** `minute`: a sliding window. Others are stocks: refilled each `day` or `month`, or call slots. */
  readonly per: 'minute' | 'day' | 'month' | 'flight';
  /** The field of QuotaLimits that has its limit. */
  readonly field: keyof QuotaLimits;
}

/** By the name that settings, commands, interfaces and messages use. */
export const QUOTA_KINDS = {
  requests_per_minute: { unit: 'requests', per: 'minute', field: 'requestsPerMinute' },
  tokens_per_minute: { unit: 'tokens', per: 'minute', field: 'tokensPerMinute' },
  calls_in_flight: { unit: 'calls', per: 'flight', field: 'callsInFlight' },
  calls_per_day: { unit: 'calls', per: 'day', field: 'callsPerDay' },
  tokens_per_day: { unit: 'tokens', per: 'day', field: 'tokensPerDay' },
  calls_per_month: { unit: 'calls', per: 'month', field: 'callsPerMonth' },
  tokens_per_month: { unit: 'tokens', per: 'month', field: 'tokensPerMonth' },
  spend_per_day: { unit: 'money', per: 'day', field: 'spendPerDay' },
  spend_per_month: { unit: 'money', per: 'month', field: 'spendPerMonth' },
} as const satisfies Record<string, QuotaKind>;

export type QuotaName = keyof typeof QUOTA_KINDS;
export const QUOTA_NAMES = Object.keys(QUOTA_KINDS) as QuotaName[];

/**
 * The scopes of a call that may have quotas, in the order in which the call takes of them. `model` is one
 * model for the account, limited by a rule of its plan. Upstreams have UPSTREAM_QUOTA_NAMES.
 */
export const QUOTA_SCOPES = ['key', 'account', 'model', 'group'] as const;
export type QuotaScope = (typeof QUOTA_SCOPES)[number];

/** Tokens that a quota may allow. Sums of many such quotas stay exact as numbers. */
export const QUOTA_TOKENS_MAX = 1_000_000_000_000;

/** The limits of one scope. A field is undefined if the scope has no such quota. */
export interface QuotaLimits {
  readonly requestsPerMinute: number | undefined;
  readonly tokensPerMinute: number | undefined;
  readonly callsInFlight: number | undefined;
  readonly callsPerDay: number | undefined;
  readonly tokensPerDay: number | undefined;
  readonly callsPerMonth: number | undefined;
  readonly tokensPerMonth: number | undefined;
  readonly spendPerDay: PicoUnits | undefined;
  readonly spendPerMonth: PicoUnits | undefined;
}

/** The field of QuotaLimits that has the limit of each quota. */
export const QUOTA_FIELDS = Object.fromEntries(
  QUOTA_NAMES.map((name) => [name, QUOTA_KINDS[name].field]),
) as { readonly [Name in QuotaName]: (typeof QUOTA_KINDS)[Name]['field'] };

/** The lowest limit of a spending: a nano-unit, in which the ledger counts spending. */
export const QUOTA_SPEND_MIN = asPicoUnits(1_000n);

/** The highest limit of each quota; the lowest is 1, or QUOTA_SPEND_MIN. */
export const QUOTA_LIMITS_MAX = {
  requestsPerMinute: REQUESTS_PER_MINUTE_MAX,
  tokensPerMinute: QUOTA_TOKENS_MAX,
  callsInFlight: CALLS_IN_FLIGHT_MAX,
  callsPerDay: CALLS_PER_DAY_MAX,
  tokensPerDay: QUOTA_TOKENS_MAX,
  callsPerMonth: 31 * CALLS_PER_DAY_MAX,
  tokensPerMonth: QUOTA_TOKENS_MAX,
  spendPerDay: BALANCE_PICO_UNITS_MAX,
  spendPerMonth: BALANCE_PICO_UNITS_MAX,
} as const satisfies QuotaLimits;

/** The quotas that an upstream may have. */
export const UPSTREAM_QUOTA_NAMES = [
  'requests_per_minute',
  'tokens_per_minute',
  'calls_in_flight',
] as const satisfies readonly QuotaName[];
export type UpstreamQuotaName = (typeof UPSTREAM_QUOTA_NAMES)[number];

export type UpstreamLimits = Pick<QuotaLimits, (typeof QUOTA_FIELDS)[UpstreamQuotaName]>;

/** Whether the scope has any quota. */
export function hasQuotas(limits: QuotaLimits): boolean {
  return Object.values(limits).some((limit) => limit !== undefined);
}

// The cast: QUOTA_FIELDS has each field of the limits.
export const NO_QUOTAS = Object.fromEntries(
  Object.values(QUOTA_FIELDS).map((field) => [field, undefined]),
) as { readonly [Field in keyof QuotaLimits]: undefined };

/** An amount of a quota as views have it: a whole number, or money as decimal text. */
export type QuotaAmount = number | string;

/**
 * Returns what the amounts are of the limit, in whole percent, rounded down: 100 means that nothing is left.
 * Above 100 if the limit was lowered. The limit is above 0: settings and the admin interface reject 0.
 */
export function percentOfLimit(limit: QuotaAmount, ...amounts: readonly QuotaAmount[]): number {
  const sum = amounts.reduce((total, amount) => total + integerOf(amount), 0n);
  // Integers are exact. As floats 0.57 of 1.00 would be 56 %, and all but a pico-unit of a million 100 %.
  return Number((100n * sum) / integerOf(limit));
}

/** As `percentOfLimit`, as text: `61 %`. What is little is not called 0 %: `under 1 %`. */
export function percentText(limit: QuotaAmount, ...amounts: readonly QuotaAmount[]): string {
  const percent = percentOfLimit(limit, ...amounts);
  return percent === 0 && amounts.some((amount) => Number(amount) > 0) ? 'under 1 %' : `${percent} %`;
}

/** Returns the count, or the money in pico-units. */
function integerOf(amount: QuotaAmount): bigint {
  return typeof amount === 'number' ? BigInt(amount) : picoUnitsOfExact(amount);
}
