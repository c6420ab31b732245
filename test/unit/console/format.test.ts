/** Moments of the axis of a chart, sizes and other numbers. The file under test is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t from 'tap';

interface Bundle {
  readonly axisMoment: (unixSeconds: number, shownSeconds: number, barSeconds?: number) => string;
  readonly bytes: (value: number) => string;
  readonly milliseconds: (value: number) => string;
  readonly roughMoney: (value: number) => string;
  readonly percent: (part: number, whole: number) => string;
  readonly shortNumber: (value: number) => string;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'format.mjs');
  const entryPoints = ['./src/console/format.ts'];
  await build({ entryPoints, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  return (await import(outfile)) as Bundle;
}

void t.test('a bar of a day has the date of its row, wherever the browser is', async (t) => {
  const { axisMoment } = await bundle();
  const midnight = Date.UTC(2025, 0, 31) / 1_000;
  const { TZ } = process.env;
  t.teardown(() => {
    if (TZ === undefined) delete process.env.TZ;
    else process.env.TZ = TZ;
  });
  for (const [zone, hour] of [
    ['America/New_York', '19:00'],
    ['UTC', '00:00'],
    ['Pacific/Kiritimati', '14:00'],
  ] as const) {
    process.env.TZ = zone;
    for (const days of [0, 1, 29])
      t.equal(axisMoment(midnight, days * 86_400, 86_400), '31 Jan', `${days} days in ${zone}`);
    t.equal(axisMoment(midnight, 3_600, 3_600), hour, `an hour in ${zone}`);
    t.equal(axisMoment(midnight, 300), `${hour}:00`, `five minutes in ${zone}`);
  }
  process.env.TZ = 'America/New_York';
  t.equal(axisMoment(midnight, 7 * 86_400), '30 Jan', 'a moment among days');
  t.end();
});

void t.test('a size has the unit by which it was divided', async (t) => {
  const { bytes } = await bundle();
  t.equal(bytes(12.3 * 1024 ** 2), '12.3 MiB');
  t.equal(bytes(1_000_000_000), '954 MiB');
  t.equal(bytes(1.5 * 1024 ** 3), '1.5 GiB');
  t.end();
});

void t.test('no number is rounded up to a thousand of its unit', async (t) => {
  const { bytes, milliseconds, shortNumber } = await bundle();
  for (const [value, text] of [
    [9_999, '9,999'],
    [9_999.4, '9,999'],
    [9_999.6, '10k'],
    [12_345, '12.3k'],
    [999_499, '999k'],
    [999_500, '1M'],
    [999_999, '1M'],
    [-999_999, '-1M'],
    [999_999_999, '1G'],
    [999_999_999_999, '1T'],
  ] as const)
    t.equal(shortNumber(value), text);
  for (let exponent = 0; exponent < 15; exponent++) {
    for (const share of [0.9989, 0.9994, 0.9995, 0.9999, 1, 1.0004]) {
      const value = share * 10 ** exponent;
      t.notMatch(shortNumber(value), /^\d,\d+[a-zA-Z]/, `${value}`);
      t.notMatch(milliseconds(Math.min(value, 900_000)), /,\d+ ms/, `${value} ms`);
    }
  }
  t.equal(milliseconds(999.4), '999 ms');
  t.equal(milliseconds(999.6), '1 s');
  t.equal(bytes(1023.4 * 1024 ** 2), '1,023 MiB');
  t.equal(bytes(1023.9 * 1024 ** 2), '1 GiB');
  t.end();
});

void t.test('all alone are 100 %', async (t) => {
  const { percent } = await bundle();
  t.equal(percent(9_999, 10_000), '99.9 %');
  t.equal(percent(99_999, 100_000), '99.9 %');
  t.equal(percent(3, 3), '100 %');
  t.equal(percent(0, 3), '0 %');
  t.equal(percent(1, 3), '33.3 %');
  t.end();
});

void t.test('a little money is written in decimals', async (t) => {
  const { roughMoney } = await bundle();
  for (const [value, text] of [
    [0, '0'],
    [3e-6, '0.000003'],
    [-2.51e-7, '-0.00000025'],
    [1e-12, '0.000000000001'],
    [0.000_228, '0.00023'],
    [0.999, '1'],
    [1_234.5, '1,235'],
    [12_345, '12.3k'],
  ] as const)
    t.equal(roughMoney(value), text);
  t.end();
});
