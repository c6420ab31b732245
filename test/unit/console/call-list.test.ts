/** What the list of calls shows of responses that come late. Its file is bundled for Node, with Preact. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { build } from 'esbuild';
import t, { type Test } from 'tap';

interface List {
  readonly shown: { readonly calls: readonly { readonly request_id: string }[] } | undefined;
  readonly setLive: (isLive: boolean) => void;
  readonly showOlder: () => void;
}
interface Bundle {
  readonly useCallList: (filter: Readonly<Record<string, string>>) => List;
  readonly render: (child: unknown, parent: unknown) => void;
  readonly h: (component: () => null, props: null) => unknown;
}
interface Request {
  readonly query: URLSearchParams;
  readonly respond: (ids: readonly string[], cursors: Cursors) => Promise<void>;
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

/** Shows the list of the account `a`. Its requests wait until the test responds to them. */
async function show(t: Test) {
  const requests: Request[] = [];
  const fetchCalls = (path: string): Promise<Response> =>
    new Promise((resolve) => {
      const respond: Request['respond'] = async (ids, { next = null, newest = '0' }) => {
        const data = ids.map((id) => ({ request_id: id, time: '2026-01-31T12:00:00.000Z' }));
        resolve(Response.json({ data, next, newest, searched_to: null }));
        await pause(20);
      };
      requests.push({ query: new URL(path, 'http://gateway').searchParams, respond });
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
  return {
    list: () => list,
    ids: () => list.shown?.calls.map((call) => call.request_id),
    requests,
    /** Resolves with the request of that index as soon as it was sent. */
    requestAt: async (index: number): Promise<Request> => {
      while (requests.length <= index) await pause(5);
      return requests[index]!;
    },
    filterBy: (name: string): void => {
      account = name;
      render(h(Page, null), root);
    },
  };
}

void t.test('older calls are fetched once, however often the operator asks', async (t) => {
  const { list, ids, requests, requestAt } = await show(t);
  await (await requestAt(0)).respond(['a9'], { next: 'older' });
  list().showOlder();
  list().showOlder();
  await pause(20);
  t.equal(requests.length, 2, 'the second click sends nothing');
  for (const request of requests.slice(1)) await request.respond(['a8'], { next: 'oldest' });
  t.same(ids(), ['a9', 'a8']);
});

void t.test('a response to former filters is dropped, also if the filters are the same again', async (t) => {
  const { list, ids, requests, requestAt, filterBy } = await show(t);
  await (await requestAt(0)).respond(['a9'], { next: 'older' });
  list().showOlder();
  const older = await requestAt(1);
  filterBy('b');
  await (await requestAt(2)).respond(['b9'], { next: 'older' });
  t.same(ids(), ['b9']);
  filterBy('a');
  await pause(20);
  await older.respond(['a8'], {});
  t.same(ids(), ['b9'], 'calls of two filters are never shown together');
  list().showOlder();
  await pause(20);
  t.equal(requests.length, 3, 'nothing is added to the list of the former filters');
  await (await requestAt(3)).respond(['a9'], {});
  t.same(ids(), ['a9']);
});

void t.test('a response to the tail is dropped if the list was fetched again meanwhile', async (t) => {
  const { list, ids, requests, requestAt } = await show(t);
  const first = Array.from({ length: 500 }, (_, index) => `first-${index}`);
  await (await requestAt(0)).respond(first, { newest: '1' });
  await (await requestAt(1)).respond(['second'], { newest: '2' });
  t.equal(ids()?.length, 500, 'the tail has cut the list');
  const tail = await requestAt(2);
  t.equal(tail.query.get('after'), '2');
  list().showOlder();
  await (await requestAt(3)).respond(['third', 'second', ...first], { newest: '3' });
  t.equal(ids()?.length, 502);
  await tail.respond(['third'], { newest: '3' });
  t.equal(ids()?.length, 502, 'the list has this call already');
  list().setLive(true);
  t.equal((await requestAt(4)).query.get('after'), '3');
  t.equal(requests.length, 5);
});
