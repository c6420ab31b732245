/** Waits that upstreams ask for. */
import t from 'tap';
import { asWallMs } from '#src/core/units.js';
import { boundedSeconds, retryAfterSeconds, shorterWait } from '#src/upstream/retry-after.js';

const NOW = asWallMs(Date.UTC(2024, 0, 1));

void t.test('Retry-After: seconds, dates, nonsense, bounds', (t) => {
  t.equal(retryAfterSeconds('0', NOW), 1);
  t.equal(retryAfterSeconds('3600', NOW), 3600);
  t.equal(retryAfterSeconds('3601', NOW), 3600);
  t.equal(retryAfterSeconds(' 12 ', NOW), 12);
  t.equal(retryAfterSeconds('12.5', NOW), 13, 'Date.parse would read a day in May or December');
  t.equal(retryAfterSeconds('30.5', NOW), 31);
  t.equal(retryAfterSeconds('Mon, 01 Jan 2024 00:00:30 GMT', NOW), 30);
  t.equal(retryAfterSeconds('Sun, 31 Dec 2023 00:00:30 GMT', NOW), 1);
  t.equal(retryAfterSeconds('9'.repeat(400), NOW), 3600, 'Infinity');
  t.equal(retryAfterSeconds('2024-01-01T00:00:30Z', NOW), 30);
  t.equal(retryAfterSeconds('Monday, 01-Jan-24 00:00:30 GMT', NOW), 30, 'the older form of RFC 850');
  t.equal(retryAfterSeconds('Mon Jan  1 00:00:30 2024 UTC', NOW), 30);
  // Date.parse takes the next five for days of 2001.
  for (const text of ['-1', '-30', '+5', 'in 5', '5 1'])
    t.equal(retryAfterSeconds(text, NOW), undefined, text);
  for (const text of ['', ' ', '-5x', 'soon', 'Infinity', '1e9'])
    t.equal(retryAfterSeconds(text, NOW), undefined, text);
  t.equal(retryAfterSeconds(undefined, NOW), undefined);
  t.end();
});

void t.test('any number is bounded', (t) => {
  for (const [told, seconds] of [
    [NaN, 1],
    [-Infinity, 1],
    [-3, 1],
    [0, 1],
    [0.2, 1],
    [34.4, 35],
    [3_600, 3_600],
    [3_600.5, 3_600],
    [Infinity, 3_600],
  ] as const)
    t.equal(boundedSeconds(told), seconds, String(told));
  t.end();
});

void t.test('of two waits the shorter one counts', (t) => {
  t.equal(shorterWait(undefined, undefined), undefined);
  t.equal(shorterWait(3, undefined), 3);
  t.equal(shorterWait(undefined, 3), 3);
  t.equal(shorterWait(5, 3), 3);
  t.end();
});
