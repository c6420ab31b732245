/**
 * The codec of the limits in a row of a key or a group (key-rows.ts, group-rows.ts). Pure.
 *
 * Must hold: rows keep their fields, as record-codec.ts says; a limit that is not set is absent
 * (test/unit/store/record-codec.rows-on-disk.test.ts). change-description.ts makes names of the admin
 * interface from these names: `spendPerDayPicoUnits` is `spend_per_day` there. The compiler sees a limit of
 * QuotaLimits that has no field.
 */
import type { Static } from 'typebox';
import * as Type from 'typebox';
import type { QuotaLimits } from '../core/quotas.js';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import { Money, type NoFields } from './record-codec.js';

const Limit = Type.Optional(Type.Integer({ minimum: 1 }));
/** The limits that a scope has; others are absent. Formats before 4 had the first two only. */
export const LIMITS = {
  requestsPerMinute: Limit,
  callsPerDay: Limit,
  tokensPerMinute: Limit,
  callsInFlight: Limit,
  tokensPerDay: Limit,
  callsPerMonth: Limit,
  tokensPerMonth: Limit,
  spendPerDayPicoUnits: Type.Optional(Money),
  spendPerMonthPicoUnits: Type.Optional(Money),
};
type StoredLimits = Static<Type.TObject<typeof LIMITS>>;

/** Returns a value for each field of LIMITS; `rowCodec` leaves out those that are undefined. */
export function packLimits(limits: QuotaLimits): {
  [Name in keyof StoredLimits]-?: StoredLimits[Name] | undefined;
} {
  const { requestsPerMinute, callsPerDay, tokensPerMinute, callsInFlight, ...others } = limits;
  const { tokensPerDay, callsPerMonth, tokensPerMonth, spendPerDay, spendPerMonth, ...unknown } = others;
  unknown satisfies NoFields;
  return {
    ...{ requestsPerMinute, callsPerDay, tokensPerMinute, callsInFlight },
    ...{ tokensPerDay, callsPerMonth, tokensPerMonth },
    spendPerDayPicoUnits: spendPerDay?.toString(),
    spendPerMonthPicoUnits: spendPerMonth?.toString(),
  };
}

export function readLimits(stored: StoredLimits): QuotaLimits {
  return {
    requestsPerMinute: stored.requestsPerMinute,
    tokensPerMinute: stored.tokensPerMinute,
    callsInFlight: stored.callsInFlight,
    callsPerDay: stored.callsPerDay,
    tokensPerDay: stored.tokensPerDay,
    callsPerMonth: stored.callsPerMonth,
    tokensPerMonth: stored.tokensPerMonth,
    spendPerDay: moneyOf(stored.spendPerDayPicoUnits),
    spendPerMonth: moneyOf(stored.spendPerMonthPicoUnits),
  };
}

function moneyOf(text: string | undefined): PicoUnits | undefined {
  return text === undefined ? undefined : asPicoUnits(BigInt(text));
}
