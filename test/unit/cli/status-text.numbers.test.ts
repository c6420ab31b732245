import t from 'tap';
import {
  countText,
  durationText,
  mebibytesText,
  moneyText,
  rateText,
  uptimeText,
} from '#src/cli/status-text.js';

void t.test('figures are short, and what is not known is a dash', (t) => {
  t.same([0, 999, 1_234_567, 9_999_999, 12_345_678].map(countText), [
    '0',
    '999',
    '1,234,567',
    '9,999,999',
    '12.3M',
  ]);
  t.same([0, 0.04, 9.94, 9.96, 10, 1_234.5].map(rateText), ['0', '0.0', '9.9', '10', '10', '1,235']);
  t.same(
    [0.996, 9.96, 999.6, 9_960].map((value) => durationText({ ms: value, above: false })),
    ['1.0 ms', '10 ms', '1.0 s', '10 s'],
    'rounded up to the next form',
  );
  const ms = (value: number) => durationText({ ms: value, above: false });
  t.same([0, 0.35, 1, 9.94, 10, 999, 1_000, 9_949, 12_345].map(ms), [
    '0.00 ms',
    '0.35 ms',
    '1.0 ms',
    '9.9 ms',
    '10 ms',
    '999 ms',
    '1.0 s',
    '9.9 s',
    '12 s',
  ]);
  t.equal(durationText({ ms: 60_000, above: true }), '> 60 s');
  t.same([0, 59, 3_661, 86_400].map(uptimeText), ['00:00:00', '00:00:59', '01:01:01', '1d 00:00:00']);
  t.equal(mebibytesText(1024 * 1024 * 1.5), '1.5 MiB');
  t.same([0, 0.0000015, 99.5, 100, 1_234.567].map(moneyText), [
    '0.000000',
    '0.000002',
    '99.500000',
    '100.00',
    '1234.57',
  ]);
  t.same(
    [countText, rateText, durationText, uptimeText, mebibytesText, moneyText].map((text) => text(undefined)),
    ['–', '–', '–', '–', '–', '–'],
  );
  t.end();
});
