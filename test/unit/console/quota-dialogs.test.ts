/** Which limits a dialog sends. The file under test is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t from 'tap';
import { QUOTA_NAMES } from '#src/core/quotas.js';

type Texts = Readonly<Record<string, string>>;

interface Bundle {
  readonly changesOfLimits: (initial: Texts, texts: Texts) => object;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'quota-dialogs.mjs');
  await build({
    entryPoints: ['src/console/quota-dialogs.tsx'],
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

const NONE: Texts = Object.fromEntries(QUOTA_NAMES.map((name) => [name, '']));

void t.test('only what was changed is sent; an emptied field removes its limit', async (t) => {
  const { changesOfLimits } = await bundle();
  const initial = { ...NONE, calls_per_day: '5', tokens_per_day: '70', spend_per_day: '1.50' };
  t.same(changesOfLimits(initial, initial), {}, 'nothing was changed');
  t.same(changesOfLimits(initial, { ...initial, calls_per_day: ' 5 ', tokens_per_month: ' ' }), {});
  t.same(changesOfLimits(initial, { ...initial, calls_per_day: '6' }), { calls_per_day: 6 });
  t.same(changesOfLimits(initial, { ...initial, calls_per_day: '', spend_per_day: ' ' }), {
    calls_per_day: null,
    spend_per_day: null,
  });
  t.same(
    changesOfLimits(initial, { ...initial, spend_per_day: ' 9007199254740993.01 ', spend_per_month: '2' }),
    { spend_per_day: '9007199254740993.01', spend_per_month: '2' },
    'money stays text',
  );
});
