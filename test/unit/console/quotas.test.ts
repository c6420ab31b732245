/** Since when a quota counts, by the time zone of the session. The file under test is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t from 'tap';

interface Bundle {
  readonly countedSince: (quota: string, resetsAt: number | null, nowSeconds: number) => number | undefined;
  readonly signIn: (token: string) => Promise<void>;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'quotas.mjs');
  const contents =
    'export { countedSince } from "./src/console/quotas.tsx"; export { signIn } from "./src/console/session.ts";';
  await build({
    stdin: { contents, resolveDir: process.cwd() },
    outfile,
    bundle: true,
    format: 'esm',
    platform: 'node',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    logLevel: 'warning',
  });
  return (await import(outfile)) as Bundle;
}

const seconds = (text: string): number => Date.parse(text) / 1_000;

void t.test('a quota counts since its day or month began, also when clocks have changed', async (t) => {
  const { countedSince, signIn } = await bundle();
  const signInTo = async (zone: string | undefined): Promise<void> => {
    globalThis.fetch = () =>
      Promise.resolve(Response.json({ signed_in: true, who: 'ann', role: 'viewer', quota_timezone: zone }));
    await signIn('token');
  };
  for (const [zone, quota, end, start] of [
    // Clocks go back on 2026-10-25 and forward on 2026-03-29.
    ['Europe/Berlin', 'tokens_per_day', '2026-10-25T23:00Z', '2026-10-24T22:00Z'],
    ['Europe/Berlin', 'spend_per_month', '2026-10-31T23:00Z', '2026-09-30T22:00Z'],
    ['Europe/Berlin', 'calls_per_month', '2026-03-31T22:00Z', '2026-02-28T23:00Z'],
    ['Europe/Berlin', 'calls_per_day', '2026-10-25T16:00Z', '2026-10-24T16:00Z'],
    ['-09:30', 'spend_per_day', '2026-03-01T09:30Z', '2026-02-28T09:30Z'],
    ['+14:00', 'tokens_per_month', '2028-02-29T10:00Z', '2028-01-31T10:00Z'],
  ] as const) {
    await signInTo(zone);
    t.equal(countedSince(quota, seconds(end), 0), seconds(start), `${zone} ${quota} ${end}`);
  }
  t.equal(countedSince('requests_per_minute', null, 1_000), 940);
  t.equal(countedSince('calls_in_flight', null, 0), undefined);
  for (const zone of ['Mars/Olympus', undefined]) {
    await signInTo(zone);
    t.equal(countedSince('spend_per_day', seconds('2026-03-01T00:00Z'), 0), undefined, 'no guess');
  }
});
