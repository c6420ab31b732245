/** Which rows the list of accounts fetches and shows. Its file is bundled for Node, with Preact. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t, { type Test } from 'tap';
import { eventually } from '../../support/gateway.js';

interface Account {
  readonly id: string;
  readonly active: boolean;
}
interface Rows {
  readonly count: number;
  readonly accountAt: (row: number) => Account | undefined;
  readonly fetchRows: (first: number, last: number) => void;
  readonly onChanged: (account: Account) => void;
}
interface Bundle {
  readonly useAccountRows: (filter: object, total: number) => Rows;
  readonly useEffect: (effect: () => void, inputs: readonly unknown[]) => void;
  readonly render: (child: unknown, parent: unknown) => void;
  readonly h: (component: (props: { rows: Rows }) => unknown, props: { rows?: Rows } | null) => unknown;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'account-rows.mjs');
  const contents =
    "export { h, render } from 'preact'; export { useEffect } from 'preact/hooks'; export * from './src/console/account-rows.ts';";
  const stdin = { contents, resolveDir: process.cwd() };
  await build({ stdin, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  return (await import(outfile)) as Bundle;
}

const bundled = bundle();
const TOTAL = 250;

/** Shows TOTAL accounts, all of which each filter finds. Rows `first` to `last` are in sight. */
async function show(t: Test, sight: { search: string; first: number; last: number }) {
  const queries: URLSearchParams[] = [];
  const fetchAccounts = (path: string): Promise<Response> => {
    const query = new URL(path, 'http://gateway').searchParams;
    queries.push(query);
    const from = Number(query.get('cursor'));
    const to = Math.min(TOTAL, from + Number(query.get('limit')));
    const data = Array.from({ length: to - from }, (_, at) => ({ id: `acct_${from + at}`, active: true }));
    return Promise.resolve(Response.json({ data, next: to === TOTAL ? null : String(to) }));
  };
  t.intercept(globalThis, 'fetch', { value: fetchAccounts as never });
  // No refresh by the clock: a page that is not shown is not refreshed.
  t.intercept(globalThis, 'document' as never, { value: { hidden: true } as never });
  const { useAccountRows, useEffect, render, h } = await bundled;
  let rows!: Rows;
  const List = (props: { rows: Rows }): null => {
    useEffect(
      () => props.rows.fetchRows(sight.first, Math.min(sight.last, props.rows.count - 1)),
      [sight.first, sight.last, props.rows.fetchRows, props.rows.count],
    );
    return null;
  };
  const Page = (): unknown => {
    rows = useAccountRows({ search: sight.search, plan: '', group: '', active: '' }, TOTAL);
    return h(List, { rows });
  };
  const root = { childNodes: [], firstChild: null };
  const draw = (): void => render(h(Page, null), root);
  draw();
  t.teardown(() => render(null, root));
  return {
    queries,
    rows: () => rows,
    draw,
    row: (row: number): Promise<Account> => eventually(`row ${row}`, () => rows.accountAt(row)),
  };
}

void t.test('a changed account is shown at once, in whatever page it is', async (t) => {
  for (const search of ['', 'a']) {
    const sight = { search, first: 0, last: 99 };
    const { rows, row, draw } = await show(t, sight);
    await row(99);
    Object.assign(sight, { first: 80, last: 180 });
    draw();
    const { id } = await row(180);
    rows().onChanged({ id, active: false });
    t.equal((await row(180)).active, false, `search '${search}'`);
    t.equal((await row(179)).active, true);
  }
});

void t.test('without its filter the list shows the rows that are in sight', async (t) => {
  const sight = { search: 'a', first: 0, last: TOTAL - 1 };
  const { rows, row, draw, queries } = await show(t, sight);
  await row(TOTAL - 1);
  Object.assign(sight, { first: 140, last: 160 });
  draw();
  t.equal(rows().count, TOTAL);
  queries.length = 0;
  Object.assign(sight, { search: '' });
  draw();
  await eventually('a request without the filter', () =>
    queries.some((query) => !query.has('search')) ? true : undefined,
  );
  t.equal((await row(150)).id, 'acct_150');
});
