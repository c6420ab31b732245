import t from 'tap';
import { Calendar, isTimezone } from '#src/core/calendar.js';

const at = (iso: string): number => Date.parse(iso);
const iso = (ms: number): string => new Date(ms).toISOString();

void t.test('days and months of the specification begin at 00:00 in UTC+8', (t) => {
  const calendar = new Calendar();
  const day = calendar.dayAt(at('2026-11-30T15:59:59.999Z'));
  t.equal(iso(day.startMs), '2026-11-29T16:00:00.000Z');
  t.equal(iso(day.endMs), '2026-11-30T16:00:00.000Z');
  t.equal(calendar.dayAt(at('2026-11-30T16:00:00Z')).number, day.number + 1);
  const month = calendar.monthAt(at('2026-11-30T15:59:59.999Z'));
  t.equal(iso(month.startMs), '2026-10-31T16:00:00.000Z');
  t.equal(iso(month.endMs), '2026-11-30T16:00:00.000Z');
  t.equal(calendar.monthAt(at('2026-11-30T16:00:00Z')).number, month.number + 1);
  t.equal(calendar.monthAt(at('1970-01-01T00:00:00Z')).number, 0);
  t.end();
});

void t.test('a zone with summer time has days of 23 and 25 hours', (t) => {
  const calendar = new Calendar('Europe/Berlin');
  const spring = calendar.dayAt(at('2026-03-29T12:00:00Z'));
  t.equal(spring.endMs - spring.startMs, 23 * 3_600_000);
  const autumn = calendar.dayAt(at('2026-10-25T12:00:00Z'));
  t.equal(autumn.endMs - autumn.startMs, 25 * 3_600_000);
  const month = calendar.monthAt(at('2026-10-25T12:00:00Z'));
  t.equal(iso(month.startMs), '2026-09-30T22:00:00.000Z');
  t.equal(iso(month.endMs), '2026-10-31T23:00:00.000Z');
  t.end();
});

void t.test('every moment is in its day and month, and their numbers never go back', (t) => {
  // Santiago sets its clocks back over midnight, Apia has left out a day, Kathmandu is 5:45 ahead.
  for (const zone of ['America/Santiago', 'Pacific/Apia', 'Asia/Kathmandu', '-03:30', 'UTC']) {
    const calendar = new Calendar(zone);
    let last = { day: 0, month: 0, endMs: 0 };
    for (let ms = at('2011-12-20T00:00:00Z'); ms < at('2012-05-10T00:00:00Z'); ms += 15 * 60_000) {
      const day = calendar.dayAt(ms);
      const month = calendar.monthAt(ms);
      const isWithin = [day, month].every(({ startMs, endMs }) => startMs <= ms && ms < endMs);
      const goesOn = day.number >= last.day && month.number >= last.month;
      if (!isWithin || !goesOn) t.fail(`${zone} at ${iso(ms)}`, { day, month, last });
      last = { day: day.number, month: month.number, endMs: day.endMs };
    }
    t.ok(last.day > 15_000, `${zone} was walked`);
  }
  t.end();
});

void t.test('a count of tomorrow counts tomorrow, one of a later day today', (t) => {
  // In Berlin clocks are set back in this night, and Apia leaves out the next day.
  for (const [zone, now] of [
    ['Europe/Berlin', '2026-10-24T21:30:00Z'],
    ['Pacific/Apia', '2011-12-30T09:30:00Z'],
    ['+08:00', '2026-11-30T15:30:00Z'],
  ] as const) {
    const [calendar, other] = [new Calendar(zone), new Calendar(zone)];
    const today = other.dayAt(at(now));
    const tomorrow = other.dayAt(today.endMs);
    const month = other.monthAt(at(now));
    const nextMonth = other.monthAt(month.endMs);
    for (let times = 0; times < 2; times++) {
      t.same(calendar.dayOf(tomorrow.number, at(now)), tomorrow, zone);
      for (const number of [0, today.number - 1, today.number, tomorrow.number + 1, tomorrow.number + 400])
        t.same(calendar.dayOf(number, at(now)), today);
      t.same(calendar.dayOf(tomorrow.number, tomorrow.startMs), tomorrow);
      t.same(calendar.monthOf(nextMonth.number, at(now)), nextMonth);
      for (const number of [0, month.number, nextMonth.number + 1])
        t.same(calendar.monthOf(number, at(now)), month);
    }
  }
  t.end();
});

void t.test('what is a time zone', (t) => {
  for (const zone of ['+08:00', '-12:00', '+05:45', 'UTC', 'Europe/Berlin']) t.ok(isTimezone(zone), zone);
  for (const text of ['', '8', '+8', '+15:00', 'Europe/Nowhere', '+08:60']) t.notOk(isTimezone(text), text);
  t.throws(() => new Calendar('Mars/Olympus'));
  t.end();
});
