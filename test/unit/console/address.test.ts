/** Which page is open while the address changes. Its file is bundled for Node, with Preact. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { build } from 'esbuild';
import t from 'tap';

interface PageAddress {
  readonly page: string;
  readonly item: string;
  readonly filters: Readonly<Record<string, string>>;
}
interface Bundle {
  readonly usePageAddress: () => PageAddress;
  readonly keepPage: () => () => void;
  readonly render: (child: unknown, parent: unknown) => void;
  readonly h: (component: () => null, props: null) => unknown;
}

async function bundle(): Promise<Bundle> {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-console-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const outfile = join(folder, 'address.mjs');
  const contents =
    "export { h, render } from 'preact'; export * from './src/console/address.ts'; export { keepPage } from './src/console/session.ts';";
  const stdin = { contents, resolveDir: process.cwd() };
  await build({ stdin, outfile, bundle: true, format: 'esm', platform: 'node', logLevel: 'warning' });
  return (await import(outfile)) as Bundle;
}

void t.test('while a dialog keeps the page, no address opens another', async (t) => {
  const address = { hash: '' };
  const listeners: (() => void)[] = [];
  let pushes = 0;
  const globals = {
    location: address,
    // As the browser's, which calls no `hashchange`.
    history: {
      pushState: (_state: null, _title: string, url: string) => {
        pushes += 1;
        address.hash = url;
      },
    },
    addEventListener: (_type: string, listener: () => void) => listeners.push(listener),
    removeEventListener: () => undefined,
    document: {},
  };
  for (const [name, value] of Object.entries(globals))
    t.intercept(globalThis, name as never, { value: value as never });
  const { usePageAddress, keepPage, render, h } = await bundle();
  let open: PageAddress | undefined;
  const Page = (): null => {
    open = usePageAddress();
    return null;
  };
  const go = async (hash: string): Promise<void> => {
    address.hash = hash;
    for (const listener of listeners) listener();
    await pause(20);
  };
  // Two components may have the address.
  for (let components = 0; components < 2; components++)
    render(h(Page, null), { childNodes: [], firstChild: null });
  while (listeners.length < 2) await pause(5);
  for (const [hash, shown] of [
    ['', '#/'],
    ['#/accounts/acct_1', '#/accounts/acct_1'],
  ] as const) {
    if (hash !== '') await go(hash);
    const before = open;
    const letGo = keepPage();
    for (const other of ['#/accounts', '#/operators', '#/']) {
      await go(other);
      t.same(open, before, `${other} opens nothing`);
      t.equal(address.hash, shown, 'the address is that of the page');
      t.ok(pushes <= 1, 'one entry of the history in place of that which was left');
      pushes = 0;
    }
    letGo();
    await go('#/operators');
    t.match(open, { page: 'operators', item: '' });
    await go(hash);
  }
  await go('#/calls/req_1?code=what?&model=a=b');
  t.match(open, { page: 'calls', item: 'req_1', filters: { code: 'what?', model: 'a=b' } });
  await go('#groups');
  t.match(open, { page: 'groups', item: '', filters: {} });
});
