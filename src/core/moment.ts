/**
 * Moments as people write them. Commands and the admin interface read them by this. Pure; any thread.
 *
 * Must hold: a day that is in no calendar is not read as another (test/unit/core/moment.test.ts).
 */

/**
 * `Date.parse` of a text that begins with a day, such as `2025-01-31` or `2025-01-31T12:00Z`. Returns Unix
 * milliseconds; NaN also for a day that is in no calendar, such as 2025-02-31, which `Date.parse` takes for
 * one of the next month.
 */
export function parseMomentMs(text: string): number {
  const day = text.slice(0, '2025-01-31'.length);
  const dayMs = Date.parse(day);
  const isInCalendar = !Number.isNaN(dayMs) && new Date(dayMs).toISOString().startsWith(day);
  return isInCalendar ? Date.parse(text) : NaN;
}
