/** What the console makes of the pages of a list. Its file is bundled for Node. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import t from 'tap';

interface Bundle {
  readonly fetchRows: (path: string, query?: object, rowsMax?: number) => Promise<object>;
  readonly get: (path: string) => Promise<object>;
  readonly isUnreached: (error: unknown) => boolean;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'api.mjs');
  const stdin = { contents: "export * from './src/console/api.ts';", resolveDir: process.cwd() };
  await build({ stdin, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  return (await import(outfile)) as Bundle;
}

void t.test('what the gateway could not read of any page is told, each file once', async (t) => {
  let pages: object[] = [];
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(Response.json(pages.shift())) });
  const { fetchRows } = await bundle();
  pages = [
    { data: [1], next: 'a', unread: ['1.calls: EACCES'] },
    { data: [], next: 'b', unread: [] },
    { data: [2], next: null, unread: ['1.calls: EACCES', '2.calls: EIO'] },
  ];
  t.same(await fetchRows('/calls'), {
    rows: [1, 2],
    hasMore: false,
    unread: ['1.calls: EACCES', '2.calls: EIO'],
  });
  pages = [{ data: [1, 2], next: null }];
  t.same(await fetchRows('/accounts', {}, 1), { rows: [1], hasMore: true });
});

void t.test('a page that a proxy sends as a success is not taken for the gateway’s', async (t) => {
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(new Response('<html>Sign in')) });
  const { get, isUnreached } = await bundle();
  const error: unknown = await get('/plans').catch((reason: unknown) => reason);
  t.match(error, { message: /^Not the gateway answered/ });
  t.ok(isUnreached(error), 'it is asked for again');
});

void t.test('a response that breaks off is not taken for another’s', async (t) => {
  const broken = (): Response =>
    new Response(new ReadableStream({ pull: (controller) => controller.error(new TypeError('terminated')) }));
  t.intercept(globalThis, 'fetch', { value: () => Promise.resolve(broken()) });
  const { get, isUnreached } = await bundle();
  const error: unknown = await get('/plans').catch((reason: unknown) => reason);
  t.match(error, { message: /^The gateway cannot be reached/ });
  t.ok(isUnreached(error), 'it is asked for again');
});
