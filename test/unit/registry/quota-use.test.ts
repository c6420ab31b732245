import t from 'tap';
import { Calendar } from '#src/core/calendar.js';
import { NO_QUOTAS } from '#src/core/quotas.js';
import { asWallMs } from '#src/core/units.js';
import { dayNumberOf } from '#src/ledger/day.js';
import {
  minuteDayCountsAt,
  flushedUses,
  quotaUsesOf,
  inheritedQuotasOf,
  sharedQuotaUses,
} from '#src/registry/quota-use.js';

const calendar = new Calendar();
const nowMs = asWallMs(Date.UTC(2025, 0, 31, 12));
const DAY_MS = 86_400_000;
const [day, month] = [calendar.dayAt(nowMs).number, calendar.monthAt(nowMs).number];
const limits = { ...NO_QUOTAS, requestsPerMinute: 60, tokensPerDay: 100, callsPerDay: 10, callsPerMonth: 50 };
const flushed = {
  minuteRequests: 0,
  callDayNumber: 0,
  callsPerDay: 0,
  minuteTokens: 7,
  dayNumber: day,
  tokensPerDay: 8,
  spendPerDay: 9,
  monthNumber: month,
  callsPerMonth: 3,
  tokensPerMonth: 4,
  spendPerMonth: 5,
  takenMs: nowMs,
};

void t.test('what the last flush says counts until its period is over', (t) => {
  const usedAt = (ms: number) => flushedUses(flushed, calendar, asWallMs(ms)).map(({ used }) => used);
  t.same(usedAt(nowMs), [7n, 8n, 3n, 4n, 9_000n, 5_000n]);
  t.same(usedAt(nowMs + 60_000), [0n, 8n, 3n, 4n, 9_000n, 5_000n], 'the minute is over');
  t.same(usedAt(nowMs + DAY_MS), [0n, 0n, 0n, 0n, 0n, 0n], 'so are the day and the month');
  const counts = { minuteUsed: 5, dayNumber: dayNumberOf(nowMs), dayCalls: 6, takenMs: nowMs };
  t.equal(minuteDayCountsAt(counts, nowMs).minuteUsed, 5);
  t.equal(minuteDayCountsAt(counts, asWallMs(nowMs + 60_000)).minuteUsed, 0);
  const callsOn = (dayNumber: number) =>
    quotaUsesOf(limits, { ...counts, dayNumber }, [], nowMs).find(({ quota }) => quota === 'calls_per_day')
      ?.used;
  t.equal(callsOn(dayNumberOf(nowMs)), 6n);
  t.equal(callsOn(dayNumberOf(nowMs) - 1), 0n);
  t.end();
});

void t.test('what processes report of a period that is over is not added, nor inherited', (t) => {
  const countOf = (period: number) => ({ period, used: 20n, held: 1n, leased: 5n, leasedByOthers: 2n });
  const use = { quota: 'tokens_per_day' as const, limit: 100n, used: 8n, held: 0n, resetsMs: undefined };
  const shared = (period: number) =>
    sharedQuotaUses([use], new Map([['tokens_per_day', countOf(period)]]), calendar, nowMs)[0];
  t.match(shared(day), { used: 20n, held: 1n, leased: 5n });
  t.match(shared(day - 1), { used: 8n, held: 0n, leased: 0n });
  const tomorrow = calendar.dayAt(nowMs + DAY_MS).endMs;
  t.match(shared(day + 1), { used: 20n, held: 1n, leased: 5n, resetsMs: tomorrow }, 'the clock was set back');
  const inherited = (period: number) =>
    inheritedQuotasOf(new Map([['tokens_per_day', countOf(period)]]), calendar, nowMs).tokensPerDay;
  t.equal(inherited(day), 22);
  t.equal(inherited(day - 1), 0);
  t.equal(inherited(day + 1), 22);
  t.end();
});
