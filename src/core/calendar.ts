/**
 * The calendar by which quotas of a day or a month are refilled: the days and months of a time zone, with
 * their numbers. ledger/, registry/, sharing/ and the console use it. Calls a day do not: ledger/day.ts
 * counts them by the day in UTC+8. Pure; any thread and the browser.
 *
 * Must hold: every moment is in one day and one month, and the numbers of days and months never go back.
 */
import { invariant } from './errors.js';
import { asWallMs, type WallMs } from './units.js';

/** The time zone, without summer time, in which the day of the specification begins at 00:00. */
export const SPECIFIED_TIMEZONE = '+08:00';

/** A day or a month of a calendar. The next one has the next number, unless the time zone skips a day. */
export interface Period {
  /** A day: days since 1970-01-01. A month: months since 1970-01. */
  readonly number: number;
  readonly startMs: WallMs;
  /** When the next day or month begins. */
  readonly endMs: WallMs;
}

const DAY_MS = 86_400_000;
/** The least by which a time zone sets its clocks back. */
const SET_BACK_MS_MIN = 15 * 60_000;
/** More than any time zone sets its clocks back. */
const SET_BACK_MS_MAX = 3 * 3_600_000;
/** An offset from UTC, such as +08:00. */
const OFFSET = /^([+-])(\d\d):([0-5]\d)$/;
/** No time zone is further ahead of UTC, or behind it. */
const OFFSET_MS_MAX = 14 * 3_600_000;

/** Whether a calendar can be made of the text: an offset such as +08:00, or a name such as Europe/Berlin. */
export function isTimezone(text: string): boolean {
  // Not undefined: the text is an offset.
  if (OFFSET.test(text)) return Math.abs(offsetMsOf(text)!) <= OFFSET_MS_MAX;
  try {
    new Intl.DateTimeFormat('en', { timeZone: text });
    return true;
  } catch {
    // A RangeError: there is no such time zone.
    return false;
  }
}

/**
 * The days and months of a time zone. Each thread has its own calendar, which remembers the last two of each:
 * so `dayAt` and `monthAt` mostly cost two comparisons. In a zone with a name the first call costs 0.5 ms.
 */
export class Calendar {
  /** Set if the zone is an offset. A zone with a name has `#format`. */
  readonly #offsetMs: number | undefined;
  readonly #format: Intl.DateTimeFormat | undefined;
  /** The last day and month, and those before: `dayOf` and `monthOf` ask for two in turn. */
  #day: Period | undefined;
  #otherDay: Period | undefined;
  #month: Period | undefined;
  #otherMonth: Period | undefined;

  /** Throws if `isTimezone` is false for the text. */
  constructor(timezone: string = SPECIFIED_TIMEZONE) {
    invariant(isTimezone(timezone), `a time zone, got ${timezone}`);
    this.#offsetMs = offsetMsOf(timezone);
    if (this.#offsetMs !== undefined) return;
    this.#format = new Intl.DateTimeFormat('en-u-ca-gregory-nu-latn', {
      timeZone: timezone,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  }

  dayAt(wallMs: number): Period {
    const lastDay = this.#day;
    if (lastDay !== undefined && wallMs >= lastDay.startMs && wallMs < lastDay.endMs) return lastDay;
    const otherDay = this.#otherDay;
    this.#otherDay = lastDay;
    if (isIn(otherDay, wallMs)) return (this.#day = otherDay);
    let number = Math.floor(this.#localMs(wallMs) / DAY_MS);
    // If clocks are set back over midnight, the day before comes once more. Here the new day goes on.
    if (wallMs >= this.#utcOf((number + 1) * DAY_MS)) number += 1;
    const startMs = this.#utcOf(number * DAY_MS);
    return (this.#day = { number, startMs, endMs: this.#utcOf((number + 1) * DAY_MS) });
  }

  monthAt(wallMs: number): Period {
    const lastMonth = this.#month;
    if (lastMonth !== undefined && wallMs >= lastMonth.startMs && wallMs < lastMonth.endMs) return lastMonth;
    const otherMonth = this.#otherMonth;
    this.#otherMonth = lastMonth;
    if (isIn(otherMonth, wallMs)) return (this.#month = otherMonth);
    const local = new Date(this.#localMs(wallMs));
    let number = (local.getUTCFullYear() - 1970) * 12 + local.getUTCMonth();
    const startOf = (month: number): WallMs => this.#utcOf(Date.UTC(1970, month, 1));
    // As in `dayAt`: the month that has begun goes on.
    if (wallMs >= startOf(number + 1)) number += 1;
    return (this.#month = { number, startMs: startOf(number), endMs: startOf(number + 1) });
  }

  /**
   * The day in which a count of the day `number` counts at `wallMs`: today, or tomorrow if the clock was set
   * back over midnight, because a day that has begun goes on. A day further ahead was a mistake of the clock:
   * its count is of today. Of a day before today nothing counts, and the result is today too.
   */
  dayOf(number: number, wallMs: number): Period {
    const today = this.dayAt(wallMs);
    if (number <= today.number) return today;
    const tomorrow = this.dayAt(today.endMs);
    return number === tomorrow.number ? tomorrow : today;
  }

  /** As `dayOf`, for months. */
  monthOf(number: number, wallMs: number): Period {
    const month = this.monthAt(wallMs);
    if (number <= month.number) return month;
    const nextMonth = this.monthAt(month.endMs);
    return number === nextMonth.number ? nextMonth : month;
  }

  /** The local time at `wallMs`, in the milliseconds of the same time in UTC. */
  #localMs(wallMs: number): number {
    if (this.#offsetMs !== undefined) return wallMs + this.#offsetMs;
    const fields: Record<string, number> = {};
    for (const { type, value } of this.#format!.formatToParts(wallMs)) fields[type] = Number(value);
    const { year, month, day, hour, minute, second } = fields;
    // The format has no milliseconds. `%` gives a negative number before 1970, which is made positive.
    return Date.UTC(year!, month! - 1, day, hour, minute, second) + (((wallMs % 1_000) + 1_000) % 1_000);
  }

  /** The first moment at which the local time is `localMs` or later. */
  #utcOf(localMs: number): WallMs {
    if (this.#offsetMs !== undefined) return asWallMs(localMs - this.#offsetMs);
    // The search begins earlier by more than clocks are set back, so that it finds the first such moment. Its
    // steps are short, so that none passes over a span of local time that comes twice. A bisection of the
    // last step then finds the millisecond.
    let atOrAfterMs = localMs - (this.#localMs(localMs) - localMs) - SET_BACK_MS_MAX;
    while (this.#localMs(atOrAfterMs) >= localMs) atOrAfterMs -= SET_BACK_MS_MAX;
    while (this.#localMs(atOrAfterMs) < localMs) atOrAfterMs += SET_BACK_MS_MIN;
    let fromMs = atOrAfterMs - SET_BACK_MS_MIN;
    while (fromMs < atOrAfterMs) {
      const middleMs = fromMs + Math.floor((atOrAfterMs - fromMs) / 2);
      if (this.#localMs(middleMs) >= localMs) atOrAfterMs = middleMs;
      else fromMs = middleMs + 1;
    }
    return asWallMs(atOrAfterMs);
  }
}

function isIn(period: Period | undefined, wallMs: number): period is Period {
  return period !== undefined && wallMs >= period.startMs && wallMs < period.endMs;
}

/** Milliseconds by which an offset such as +08:00 is ahead of UTC; undefined for any other text. */
function offsetMsOf(text: string): number | undefined {
  const [, sign, hours, minutes] = OFFSET.exec(text) ?? [];
  if (sign === undefined) return undefined;
  return (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * 60_000;
}
