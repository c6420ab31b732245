import t from 'tap';
import { asWallMs } from '#src/core/units.js';
import type { SettledQuotas } from '#src/ledger/scope-quotas.js';
import { type InheritedUse, mergeUse } from '#src/registry/key-record.js';

const NOW_MS = 1_000_000;
const useOf = (minuteUsed: number, dayNumber: number, dayCalls: number, takenMs = NOW_MS): InheritedUse => ({
  minuteUsed,
  dayNumber,
  dayCalls,
  takenMs: asWallMs(takenMs),
});

void t.test('a key that is rotated twice before it was used has what the first had used', (t) => {
  const now = useOf(1, 8, 2);
  t.same(mergeUse(now, undefined), now);
  t.same(mergeUse(useOf(0, 0, 0), useOf(5, 8, 9)), useOf(5, 8, 9), 'not used since');
  t.same(mergeUse(now, useOf(5, 8, 9)), useOf(5, 8, 9), 'counted elsewhere by less');
  t.same(mergeUse(useOf(6, 8, 10), useOf(5, 8, 9)), useOf(6, 8, 10), 'counted with what was inherited');
  t.same(mergeUse(now, useOf(5, 7, 9)), useOf(5, 8, 2), 'of the day before');
  t.same(mergeUse(now, useOf(5, 8, 9, NOW_MS - 60_000)), useOf(1, 8, 9), 'of a minute that weighs no more');
  t.same(mergeUse(useOf(5, 8, 9, NOW_MS - 60_000), now), useOf(1, 8, 9), 'or of one that never did');
  t.end();
});

const quotasOf = (dayNumber: number, monthNumber: number, amount: number): SettledQuotas => ({
  dayNumber,
  monthNumber,
  minuteTokens: amount,
  tokensPerDay: amount,
  callsPerMonth: amount,
  tokensPerMonth: amount,
  spendPerDay: amount,
  spendPerMonth: amount,
});

void t.test('and so it has of quotas of days and months', (t) => {
  const quotasAfter = (now?: SettledQuotas, before?: SettledQuotas): SettledQuotas | undefined => {
    const use = (quotas: SettledQuotas | undefined) => ({ ...useOf(1, 8, 2), ...(quotas && { quotas }) });
    return mergeUse(use(now), use(before)).quotas;
  };
  const few = quotasOf(8, 3, 4);
  const many = quotasOf(8, 3, 9);
  t.same(quotasAfter(undefined, undefined), undefined);
  t.same(quotasAfter(many, undefined), many);
  t.same(
    quotasAfter(undefined, many),
    { ...many, minuteTokens: 0 },
    'not used since; a minute is not handed on',
  );
  t.same(quotasAfter(few, many), { ...many, minuteTokens: 4 }, 'counted elsewhere by less');
  t.same(quotasAfter(many, few), many, 'counted with what was inherited');
  const month = { callsPerMonth: 9, tokensPerMonth: 9, spendPerMonth: 9 };
  t.same(quotasAfter(few, quotasOf(7, 3, 9)), { ...few, ...month }, 'of the day before');
  t.same(quotasAfter(few, quotasOf(7, 2, 9)), few, 'of the month before');
  t.same(quotasAfter(quotasOf(7, 2, 9), few), { ...few, minuteTokens: 9 }, 'by a clock that is behind');
  t.end();
});
