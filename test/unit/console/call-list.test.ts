/** What the list of calls shows of responses that come late. Its file is bundled for Node, with Preact. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { build } from 'esbuild';
import t, { type Test } from 'tap';
import { eventually } from '../../support/gateway.js';

interface List {
  readonly error: string | undefined;
  readonly shown: { readonly calls: readonly { readonly request_id: string }[] } | undefined;
  readonly setLive: (isLive: boolean) => void;
  readonly showOlder: () => void;
}
interface Bundle {
  readonly useCallList: (filter: Readonly<Record<string, string>>) => List;
  readonly render: (child: unknown, parent: unknown) => void;
  readonly h: (component: () => null, props: null) => unknown;
}
/** The first page of a list, a page of older calls, or what is new at the top (the live tail). */
type Kind = 'first' | 'older' | 'tail';
interface Request {
  readonly kind: Kind;
  readonly query: URLSearchParams;
  readonly respond: (ids: readonly string[], cursors: Cursors) => void;
}
/** `next` leads to older calls, and `newest` to newer ones. */
interface Cursors {
  readonly next?: string;
  readonly newest?: string;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'call-list.mjs');
  const contents = "export { h, render } from 'preact'; export * from './src/console/call-list.ts';";
  const stdin = { contents, resolveDir: process.cwd() };
  await build({ stdin, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  return (await import(outfile)) as Bundle;
}

const bundled = bundle();

/** A fault that sends or shows something does so within this time, if the machine has some. */
const QUIET_MS = 50;

const kindOf = (query: URLSearchParams): Kind => {
  if (query.has('after')) return 'tail';
  return query.has('cursor') ? 'older' : 'first';
};

/** Shows the list of the account `a`. Its requests wait until the test responds to them. */
async function show(t: Test, failsAtFirst?: Kind) {
  const requests: Request[] = [];
  const taken = new Set<Request>();
  let failing = failsAtFirst;
  const fetchCalls = (path: string): Promise<Response> =>
    new Promise((resolve) => {
      const respond: Request['respond'] = (ids, { next = null, newest = '0' }) => {
        const data = ids.map((id) => ({ request_id: id, time: '2026-01-31T12:00:00.000Z' }));
        resolve(Response.json({ data, next, newest, searched_to: null }));
      };
      const query = new URL(path, 'http://gateway').searchParams;
      if (kindOf(query) === failing) {
        failing = undefined;
        resolve(Response.json({}, { status: 503 }));
        return;
      }
      requests.push({ kind: kindOf(query), query, respond });
    });
  t.intercept(globalThis, 'fetch', { value: fetchCalls as never });
  t.intercept(globalThis, 'document' as never, { value: {} as never });
  const { useCallList, render, h } = await bundled;
  let list!: List;
  let account = 'a';
  const Page = (): null => {
    list = useCallList({ account });
    return null;
  };
  const root = { childNodes: [], firstChild: null };
  render(h(Page, null), root);
  t.teardown(() => list.setLive(false));
  const ids = (): readonly string[] => list.shown?.calls.map((call) => call.request_id) ?? [];
  return {
    list: () => list,
    ids,
    /** How many requests of that kind were sent. */
    countOf: (kind: Kind): number => requests.filter((request) => request.kind === kind).length,
    /** Resolves with the first request of that kind and account that was not taken yet, once it is sent. */
    take: (kind: Kind, of = 'a'): Promise<Request> =>
      eventually(`a request of the kind ${kind}`, () => {
        const request = requests.find(
          (sent) => !taken.has(sent) && sent.kind === kind && sent.query.get('account') === of,
        );
        if (request !== undefined) taken.add(request);
        return request;
      }),
    /** The next request of that kind gets an error, and is not counted. */
    failNext: (kind: Kind): void => void (failing = kind),
    /** Resolves when the newest shown call is `first` and `count` calls are shown. */
    shown: (first: string, count: number): Promise<true> =>
      eventually(`${count} calls from ${first} on`, () =>
        ids()[0] === first && ids().length === count ? true : undefined,
      ),
    filterBy: (name: string): void => {
      account = name;
      render(h(Page, null), root);
    },
  };
}

void t.test('older calls are fetched once, however often the operator asks', async (t) => {
  const { list, ids, countOf, take, shown } = await show(t);
  (await take('first')).respond(['a9'], { next: 'older' });
  await shown('a9', 1);
  list().showOlder();
  list().showOlder();
  const older = await take('older');
  await pause(QUIET_MS);
  t.equal(countOf('older'), 1, 'the second click sends nothing');
  older.respond(['a8'], { next: 'oldest' });
  await shown('a9', 2);
  t.same(ids(), ['a9', 'a8']);
});

void t.test('a response to former filters is dropped, also if the filters are the same again', async (t) => {
  const { list, ids, countOf, take, shown, filterBy } = await show(t);
  (await take('first')).respond(['a9'], { next: 'older' });
  await shown('a9', 1);
  list().showOlder();
  const older = await take('older');
  filterBy('b');
  (await take('first', 'b')).respond(['b9'], { next: 'older' });
  await shown('b9', 1);
  filterBy('a');
  const again = await take('first');
  older.respond(['a8'], {});
  await pause(QUIET_MS);
  t.same(ids(), ['b9'], 'calls of two filters are never shown together');
  list().showOlder();
  await pause(QUIET_MS);
  t.equal(countOf('older'), 1, 'nothing is added to the list of the former filters');
  again.respond(['a9'], {});
  await shown('a9', 1);
});

void t.test('a response to the tail is dropped if the list was fetched again meanwhile', async (t) => {
  const { list, ids, take, shown } = await show(t);
  const first = Array.from({ length: 500 }, (_, index) => `first-${index}`);
  (await take('first')).respond(first, { newest: '1' });
  (await take('tail')).respond(['second'], { newest: '2' });
  await shown('second', 500);
  const tail = await take('tail');
  t.equal(tail.query.get('after'), '2', 'the tail has cut the list');
  list().showOlder();
  (await take('first')).respond(['third', 'second', ...first], { newest: '3' });
  await shown('third', 502);
  tail.respond(['third'], { newest: '3' });
  await pause(QUIET_MS);
  t.equal(ids().length, 502, 'the list has this call already');
  list().setLive(true);
  t.equal((await take('tail')).query.get('after'), '3');
});

void t.test('a tail that falls behind is replaced by the newest calls, and has no gap', async (t) => {
  const { ids, take, shown } = await show(t);
  (await take('first')).respond(['a0'], { newest: '1' });
  await shown('a0', 1);
  // More came in a second than one request of the tail gets.
  const full = Array.from({ length: 100 }, (_, index) => `behind-${index}`);
  (await take('tail')).respond(full, { newest: '2' });
  (await take('first')).respond(['z9', 'z8'], { newest: '900', next: 'older' });
  await shown('z9', 2);
  t.same(ids(), ['z9', 'z8'], 'none of which the calls in between are missing');
  const tail = await take('tail');
  t.equal(tail.query.get('after'), '900', 'it goes on from there');
  tail.respond(['z10'], { newest: '901' });
  await shown('z10', 3);
});

void t.test('a tail that cannot fetch the newest calls goes on where it was', async (t) => {
  const { take, shown, failNext } = await show(t);
  (await take('first')).respond(['a0'], { newest: '1' });
  await shown('a0', 1);
  failNext('first');
  const full = Array.from({ length: 100 }, (_, index) => `behind-${index}`);
  (await take('tail')).respond(full, { newest: '2' });
  await shown('behind-0', 101);
  const tail = await take('tail');
  t.equal(tail.query.get('after'), '2');
  tail.respond(full, { newest: '3' });
  (await take('first')).respond(['z9'], { newest: '900' });
  await shown('z9', 1);
});

void t.test('a first page that a gateway did not give while it was away is asked for again', async (t) => {
  const { setInterval: startInterval } = globalThis;
  const startFast = (callback: () => void, periodMs: number): unknown =>
    startInterval(callback, periodMs / 100);
  t.intercept(globalThis, 'setInterval', { value: startFast as never });
  const { list, ids, failNext, filterBy, shown, take } = await show(t, 'first');
  (await take('first')).respond(['a1'], { newest: '1' });
  await shown('a1', 1);
  t.equal(list().error, undefined);
  failNext('first');
  filterBy('b');
  await eventually('the error of the list of b', () => list().error);
  (await take('first', 'b')).respond(['b1'], { newest: '2' });
  await shown('b1', 1);
  await take('tail', 'b');
  t.same(ids(), ['b1'], 'live again');
  list().setLive(false);
  // Preact stops the timer some time after, and it wants `document`.
  await pause(300);
});
