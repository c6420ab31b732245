/** Which values of a chart get a point. The file under test is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t from 'tap';

interface Bundle {
  readonly loneIndexes: (values: readonly (number | null | undefined)[]) => number[];
}

void t.test('a value without a neighbour gets a point, and no other', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'chart.mjs');
  const entryPoints = ['./src/console/chart.tsx'];
  const jsx = { jsx: 'automatic', jsxImportSource: 'preact' } as const;
  const form = { bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' } as const;
  await build({ entryPoints, outfile, ...jsx, ...form });
  const matchMedia = () => ({ matches: false, addEventListener: () => undefined });
  t.intercept(globalThis, 'matchMedia' as never, { value: matchMedia as never });
  const { loneIndexes } = (await import(outfile)) as Bundle;
  for (const [values, lone] of [
    [[], []],
    [[null], []],
    [[0], [0]],
    [[5, null], [0]],
    [[null, 5], [1]],
    [
      [1, 2, null, 0, undefined, 3, null, 4, 5],
      [3, 5],
    ],
    [[1, 2, 3], []],
  ] as const)
    t.same(loneIndexes(values), lone, JSON.stringify(values));
  t.end();
});
