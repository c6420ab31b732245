/** Moments of the axis of a chart, and sizes. The file under test is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t from 'tap';

interface Bundle {
  readonly axisMoment: (unixSeconds: number, shownSeconds: number, barSeconds?: number) => string;
  readonly bytes: (value: number) => string;
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
