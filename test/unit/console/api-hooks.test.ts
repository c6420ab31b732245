/** What the console shows of responses that come out of order. Its file is bundled for Node, with Preact. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { build } from 'esbuild';
import t from 'tap';

interface Shown {
  readonly view: string | undefined;
  readonly error: string | undefined;
  readonly reload: () => void;
  readonly setView: (view: string) => void;
}
interface Paged {
  readonly shown: { readonly data: readonly number[] } | undefined;
  readonly showMore: (() => void) | undefined;
}
interface Bundle {
  readonly usePagedRows: (path: string, filter: object) => Paged;
  readonly useView: (path: string) => Shown;
  readonly render: (child: unknown, parent: unknown) => void;
  readonly h: (component: () => null, props: null) => unknown;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'api-hooks.mjs');
  const contents = "export { h, render } from 'preact'; export * from './src/console/api-hooks.ts';";
  const stdin = { contents, resolveDir: process.cwd() };
  await build({ stdin, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  return (await import(outfile)) as Bundle;
}

void t.test('a response that comes late does not replace a newer view', async (t) => {
  const answers: ((view: string) => Promise<void>)[] = [];
  const respond = (): Promise<Response> =>
    new Promise((resolve) => {
      answers.push(async (view) => {
        resolve(Response.json(view));
        await pause(20);
      });
    });
  t.intercept(globalThis, 'fetch', { value: respond });
  t.intercept(globalThis, 'document' as never, { value: {} as never });
  const { useView, render, h } = await bundle();
  let shown!: Shown;
  const Page = (): null => {
    shown = useView('/status');
    return null;
  };
  render(h(Page, null), { childNodes: [], firstChild: null });
  while (answers.length === 0) await pause(5);
  shown.reload();
  shown.reload();
  await answers[1]!('second');
  t.equal(shown.view, 'second', 'a slow gateway is shown, though a third response is awaited');
  await answers[0]!('first');
  t.equal(shown.view, 'second');
  shown.setView('changed');
  await answers[2]!('third');
  t.equal(shown.view, 'changed', 'asked for before the change');
  shown.reload();
  await answers[3]!('fourth');
  t.equal(shown.view, 'fourth');
  t.end();
});

void t.test('more rows can be asked for until the last page has come', async (t) => {
  const pages = [
    { data: [1], next: '1' },
    { data: [2], next: null },
  ];
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(Response.json(pages.shift())) });
  const { usePagedRows, render, h } = await bundle();
  let paged!: Paged;
  const Page = (): null => {
    paged = usePagedRows('/changes', {});
    return null;
  };
  render(h(Page, null), { childNodes: [], firstChild: null });
  while (paged.showMore === undefined) await pause(5);
  t.same(paged.shown?.data, [1]);
  paged.showMore();
  while (paged.shown?.data.length !== 2) await pause(5);
  await pause(20);
  t.equal(paged.showMore, undefined);
});

void t.test('a view without a period is asked for again while the gateway cannot be reached', async (t) => {
  let requests = 0;
  const periodsMs: unknown[] = [];
  const respond = (): Promise<Response> => {
    requests += 1;
    if (requests === 1) return Promise.reject(new TypeError('Failed to fetch'));
    if (requests === 2) return Promise.resolve(new Response('<html>', { status: 502 }));
    return Promise.resolve(Response.json({ error: { message: 'no such plan' } }, { status: 404 }));
  };
  t.intercept(globalThis, 'fetch', { value: respond });
  t.intercept(globalThis, 'document' as never, { value: {} as never });
  const { setInterval: startInterval } = globalThis;
  const startFast = (callback: () => void, periodMs: number): unknown => {
    periodsMs.push(periodMs);
    return startInterval(callback, 10);
  };
  t.intercept(globalThis, 'setInterval', { value: startFast as never });
  const { useView, render, h } = await bundle();
  let shown!: Shown;
  const Page = (): null => {
    shown = useView('/plans/x');
    return null;
  };
  render(h(Page, null), { childNodes: [], firstChild: null });
  while (shown.error === undefined) await pause(5);
  t.match(shown.error, 'cannot be reached');
  for (let times = 0; requests < 3 && times < 100; times++) await pause(10);
  // Preact stops the timer some time after it has drawn the error.
  await pause(300);
  t.equal(shown.error, 'no such plan');
  const requestsOfView = requests;
  await pause(100);
  t.equal(requests, requestsOfView, 'the gateway itself has responded');
  t.same([...new Set(periodsMs)], [5_000]);
});
