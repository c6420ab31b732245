/**
 * What the console shows of responses that come out of order, late or not at all. Its file is bundled for
 * Node, with Preact.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { build } from 'esbuild';
import t, { type Test } from 'tap';
import { eventually } from '../../support/gateway.js';

interface Shown {
  readonly view: string | undefined;
  readonly error: string | undefined;
  readonly reload: () => void;
  readonly setView: (view: string) => void;
}
interface Paged {
  readonly shown: { readonly data: readonly number[] } | undefined;
  readonly error: string | undefined;
  readonly showMore: (() => void) | undefined;
}
interface Bundle {
  readonly usePagedRows: (path: string, filter: object) => Paged;
  readonly useView: (path: string, refreshMs?: number) => Shown;
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

/** Timers of a page run a hundred times as fast. */
function hastenTimers(t: Test): void {
  const { setInterval: startInterval } = globalThis;
  const startFast = (callback: () => void, periodMs: number): unknown =>
    startInterval(callback, periodMs / 100);
  t.intercept(globalThis, 'setInterval', { value: startFast as never });
}

void t.test('a gateway that is slow gets no second request by the clock, unless one is lost', async (t) => {
  const answers: ((view: string) => void)[] = [];
  const respond = (): Promise<Response> =>
    new Promise((resolve) => answers.push((view) => resolve(Response.json(view))));
  t.intercept(globalThis, 'fetch', { value: respond });
  t.intercept(globalThis, 'document' as never, { value: {} as never });
  let nowMs = 0;
  t.intercept(globalThis, 'performance', { value: { now: () => nowMs } as never });
  hastenTimers(t);
  const { useView, render, h } = await bundle();
  let shown!: Shown;
  const Page = (): null => {
    shown = useView('/status', 2_000);
    return null;
  };
  const root = { childNodes: [], firstChild: null };
  render(h(Page, null), root);
  await eventually('the first request of the clock', () => answers[1]);
  await pause(200);
  t.equal(answers.length, 2, 'the page’s own and one of the clock');
  answers[1]!('second');
  await eventually('the next request', () => answers[2]);
  t.equal(shown.view, 'second');
  await pause(100);
  t.equal(answers.length, 3);
  nowMs += 30_000;
  await eventually('a request in place of the lost one', () => answers[3]);
  render(null, root);
});

void t.test('the first page of a list is asked for again after the gateway was away', async (t) => {
  const answers = [
    new Response('<html>', { status: 502 }),
    Response.json({ data: [1], next: '1' }),
    new Response('<html>', { status: 502 }),
  ];
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(answers.shift()) });
  t.intercept(globalThis, 'document' as never, { value: {} as never });
  hastenTimers(t);
  const { usePagedRows, render, h } = await bundle();
  let paged!: Paged;
  const Page = (): null => {
    paged = usePagedRows('/changes', {});
    return null;
  };
  const root = { childNodes: [], firstChild: null };
  render(h(Page, null), root);
  const showMore = await eventually('the first page', () => paged.showMore);
  t.equal(paged.error, undefined);
  showMore();
  await eventually('the error of the second page', () => paged.error);
  await pause(200);
  t.same(paged.shown?.data, [1], 'it waits for the button');
  t.match(paged.error, '502');
  render(null, root);
});

void t.test('so is that of a page that is drawn more often than that', async (t) => {
  const answers = [new Response('<html>', { status: 502 }), Response.json({ data: [1], next: null })];
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(answers.shift()) });
  t.intercept(globalThis, 'document' as never, { value: {} as never });
  hastenTimers(t);
  const { usePagedRows, render, h } = await bundle();
  let paged!: Paged;
  const Page = (): null => {
    paged = usePagedRows('/changes', {});
    return null;
  };
  const root = { childNodes: [], firstChild: null };
  const draw = (): void => render(h(Page, null), root);
  draw();
  // As statuses of the live stream draw the page, but ten times within the pause.
  const drawing = setInterval(draw, 500);
  t.teardown(() => clearInterval(drawing));
  await eventually('the first page', () => paged.shown);
  t.same(paged.shown?.data, [1]);
  render(null, root);
});
