/**
 * Since when a quota counts: for the links from what is used of it to the calls that used it (quotas.tsx).
 * Browser.
 *
 * Must hold: the moment is that of the gateway's calendar, also in a day or a month in which clocks change
 * (test/unit/console/quota-start.test.ts).
 */
import { Calendar, isTimezone } from '../core/calendar.js';
import { QUOTA_KINDS, type QuotaName } from '../core/quotas.js';
import { operatorNow } from './session.js';

/** The calendar of the setting `quota_timezone`; undefined if this browser does not know the zone. */
let calendar: Calendar | undefined;
let calendarZone: string | undefined;

function calendarOfQuotas(): Calendar | undefined {
  const zone = operatorNow()?.quotaTimezone;
  if (zone === calendarZone) return calendar;
  calendarZone = zone;
  calendar = zone !== undefined && isTimezone(zone) ? new Calendar(zone) : undefined;
  return calendar;
}

/** Calls a day are counted by the day in UTC+8, whatever `quota_timezone` says. */
const CALL_DAYS = new Calendar();

/**
 * Returns when the quota began to count; undefined for calls in flight, and in a zone that
 * this browser does not know. `resetsAt`: when its day or month ends. All in Unix seconds.
 */
export function countedSince(
  quota: QuotaName,
  resetsAt: number | null,
  nowSeconds: number,
): number | undefined {
  const { per } = QUOTA_KINDS[quota];
  if (per === 'minute') return nowSeconds - 60;
  if (per === 'flight' || resetsAt === null) return undefined;
  const periods = quota === 'calls_per_day' ? CALL_DAYS : calendarOfQuotas();
  const lastMs = resetsAt * 1_000 - 1;
  const period = per === 'day' ? periods?.dayAt(lastMs) : periods?.monthAt(lastMs);
  return period === undefined ? undefined : period.startMs / 1_000;
}
