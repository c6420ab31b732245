/** How a command finds its gateway, and what it says of one that does not answer. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import t from 'tap';
import type { Test } from 'tap';
import { readGatewayFile, writeGatewayFile } from '#src/admin/gateway-file.js';
import { tokenPath } from '#src/admin/token.js';
import type { AccountView } from '#src/admin/views.js';
import { Store } from '#src/store/store.js';
import { openHttpClient, type AdminClient } from '#src/cli/admin-client.js';
import { readList } from '#src/cli/admin-lists.js';
import { runCommand } from '../../support/command.js';
import { checkMisused, checkRefused, commandFolder, SETTINGS } from './support.js';

const TOKEN = 'operator-token-0123456789';

/** A folder in which a gateway seems to run that responses everything but `/healthz` with `answer`. */
async function seemingGateway(t: Test, answer: RequestListener, pid = process.pid): Promise<string> {
  const folder = t.testdir({ data: {} });
  writeFileSync(join(folder, 'tollgate.yaml'), SETTINGS);
  const server = createServer((request, response) => {
    if (request.url === '/healthz') response.end(JSON.stringify({ status: 'ok', pid: process.pid }));
    else answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  writeGatewayFile(join(folder, 'data'), { pid, adminHost: '127.0.0.1', adminPort: port });
  return folder;
}

void t.test('lists are read page by page, no further than is asked for', async (t) => {
  const asked: string[] = [];
  const folder = await seemingGateway(t, ({ url }, response) => {
    asked.push(url!.replace('/admin/v1', ''));
    const cursor = Number(new URL(url!, 'http://x').searchParams.get('cursor') ?? 0);
    response.end(JSON.stringify({ data: [cursor], next: cursor < 2 ? String(cursor + 1) : null }));
  });
  const { adminPort } = readGatewayFile(join(folder, 'data'))!;
  writeFileSync(tokenPath(folder), TOKEN);
  const client = await openHttpClient(folder, `http://127.0.0.1:${adminPort}`);
  const ofAccount = { query: { account: 'a b&', none: undefined } };
  t.same(await readList(client, 'GET /keys', ofAccount), { data: [0, 1, 2], next: null });
  t.same(asked.splice(0), [
    '/keys?account=a+b%26&limit=1000',
    '/keys?account=a+b%26&limit=1000&cursor=1',
    '/keys?account=a+b%26&limit=1000&cursor=2',
  ]);
  t.same(await readList(client, 'GET /accounts', {}, 2), { data: [0, 1], next: '2' });
  t.same(asked.splice(0), ['/accounts?limit=2', '/accounts?limit=1&cursor=1']);
  await client.call('GET /accounts/{account}', { id: 'a/$&' });
  t.same(asked.splice(0), ['/accounts/a%2F%24%26'], 'an id is one segment, whatever it is');
  for (const id of ['.', '..'])
    await t.rejects(client.call('POST /keys/{key}/disable', { id }), {
      message: `Nothing has the name "${id}".`,
    });
  t.same(asked, [], 'an address would lose them, and be that of another route');
});

void t.test(
  'a request without an id that its route wants, or a view taken for another, does not compile',
  (t) => {
    const never = async (): Promise<void> => {
      const client = {} as AdminClient;
      const accounts = await client.call('GET /accounts', {});
      // @ts-expect-error -- a list is no account
      const account: AccountView = accounts;
      t.ok(account);
      // @ts-expect-error -- which account is not said
      void client.call('GET /accounts/{account}', {});
      // @ts-expect-error -- no account is wanted
      void client.call('GET /accounts', { id: 'a' });
      // @ts-expect-error -- no such route
      void client.call('PUT /accounts', {});
      // @ts-expect-error -- a list without pages takes no `limit`
      void readList(client, 'GET /operators', {});
    };
    t.type(never, 'function');
    t.end();
  },
);

void t.test('a gateway that runs is asked, with the token', async (t) => {
  let asked: unknown;
  const folder = await seemingGateway(t, ({ method, url, headers }, response) => {
    asked = [method, url, headers.authorization];
    response.end('{"data":[],"next":null}');
  });
  const end = await runCommand(folder, ['accounts', 'list', '--json'], { TOLLGATE_ADMIN_TOKEN: TOKEN });
  t.same(end.json(), { data: [], next: null });
  t.same(asked, ['GET', '/admin/v1/accounts?limit=1000', `Bearer ${TOKEN}`]);
  checkRefused(
    t,
    await runCommand(folder, ['accounts', 'list']),
    /^The token of the gateway at http:\/\/127\.0\.0\.1:\d+ is not in .*admin-token: /,
  );
});

void t.test('a gateway whose data directory is named is reached without the settings', async (t) => {
  const folder = await seemingGateway(t, (_, response) => response.end('{"data":[],"next":null}'));
  writeFileSync(join(folder, 'tollgate.yaml'), 'models: [\n');
  const env = { TOLLGATE_ADMIN_TOKEN: TOKEN };
  for (const command of [
    ['accounts', 'list'],
    ['upstreams', 'reset'],
    ['reload', '--dry-run'],
  ]) {
    const refused = await runCommand(folder, command, env);
    t.equal(refused.code, 1);
    // The gateway would read the same file, so no other folder helps.
    if (command[0] === 'reload') checkRefused(t, refused, /^tollgate\.yaml:\d+: /);
    else
      t.match(
        refused.stderr,
        /^tollgate\.yaml:\d+: .*\nTo reach a gateway that runs .*\(--data, TOLLGATE_DATA\)\.\n$/,
      );
    for (const [options, environment] of [
      [['--data', 'data'], env],
      [['--data', 'data', '--config', 'none-such.yaml'], env],
      [[], { ...env, TOLLGATE_DATA: join(folder, 'data') }],
    ] as const) {
      const { stderr } = await runCommand(folder, [...command, ...options, '--json'], environment);
      t.equal(stderr, '', command.join(' '));
    }
  }
  const elsewhere = ['accounts', 'list', '--data', 'elsewhere'];
  checkRefused(t, await runCommand(folder, elsewhere, env), /^tollgate\.yaml:\d+: (?![^]*To reach)/);
});

void t.test('a redirect is not followed, so no other address gets the token', async (t) => {
  let followed = 0;
  const other = await seemingGateway(t, () => followed++);
  const { adminPort } = readGatewayFile(join(other, 'data'))!;
  const folder = await seemingGateway(t, ({ url }, response) => {
    response.writeHead(307, { location: `http://127.0.0.1:${adminPort}${url}` }).end();
  });
  const end = await runCommand(folder, ['accounts', 'list'], { TOLLGATE_ADMIN_TOKEN: TOKEN });
  checkRefused(t, end, /^The gateway at http:\/\/127\.0\.0\.1:\d+ did not answer: /);
  t.equal(followed, 0);
});

void t.test('a warning that comes with each page is told once', async (t) => {
  const folder = await seemingGateway(t, ({ url }, response) => {
    const next = url!.includes('cursor=') ? null : '1_1';
    response.writeHead(200, { warning: '199 tollgate "Calls may be missing here."' });
    response.end(JSON.stringify({ data: [], next }));
  });
  const env = { TOLLGATE_ADMIN_TOKEN: TOKEN };
  const end = await runCommand(folder, ['export', 'usage', '--day', '2025-01-31'], env);
  t.match(end, { code: 0, stdout: '' });
  t.equal(end.stderr, 'Calls may be missing here.\n');
});

void t.test('a gateway that goes away or speaks nonsense is a refusal', async (t) => {
  const env = { TOLLGATE_ADMIN_TOKEN: TOKEN };
  const gone = await seemingGateway(t, ({ socket }) => socket.destroy());
  const end = await runCommand(gone, ['accounts', 'credit', 'acme', '1'], env);
  checkRefused(
    t,
    end,
    /^The gateway at http:\/\/127\.0\.0\.1:\d+ did not answer: .*look before trying again/,
  );
  t.notMatch(end.stderr, TOKEN);
  const looked = await runCommand(gone, ['accounts', 'list'], env);
  checkRefused(t, looked, /did not answer: [^.]*\.$/m);
  t.notMatch(looked.stderr, 'change', 'a command that only looks is in no doubt of a change');
  for (const [status, body] of [
    [502, '<html>Bad Gateway</html>'],
    [500, '{"error":null}'],
    [404, 'null'],
    [200, '<html>Welcome</html>'],
    [200, ''],
    [200, 'null'],
    [200, '[]'],
  ] as const) {
    const foreign = await seemingGateway(t, (_, response) => response.writeHead(status).end(body));
    const refused = await runCommand(foreign, ['accounts', 'credit', 'acme', '1'], env);
    checkRefused(
      t,
      refused,
      new RegExp(`^What answered with status ${status} is no gateway's .*look before trying`),
    );
    t.notMatch(refused.stderr, /\n {4}at /, 'no stack');
    checkRefused(
      t,
      await runCommand(foreign, ['usage', '--csv'], env),
      new RegExp(`^What answered with status ${status} is no gateway's admin interface`),
    );
  }
});

void t.test('a page that no gateway sends ends a list', { timeout: 20_000 }, async (t) => {
  for (const page of [{}, { data: [] }, { next: null }]) {
    const client: AdminClient = {
      call: () => Promise.resolve(page as never),
      csv: () => Promise.resolve(''),
      close: () => Promise.resolve(),
    };
    await t.rejects(
      Promise.race([readList(client, 'GET /keys', {}), setTimeout(2_000, 'goes on for ever')]),
      { message: /is no gateway's admin interface/ },
      JSON.stringify(page),
    );
  }
});

void t.test('the port of the callers is told from the admin interface', async (t) => {
  const env = { TOLLGATE_ADMIN_TOKEN: TOKEN };
  const answerWith = (requestId: string) =>
    seemingGateway(t, (_, response) => {
      const body = { error: { message: 'There is nothing there.', code: 'not_found' } };
      response.writeHead(404, { 'x-request-id': requestId }).end(JSON.stringify(body));
    });
  const callers = await answerWith('req_eOxAkYRjTlu9-7');
  for (const command of [['accounts', 'list'], ['status'], ['usage', '--csv'], ['calls', 'tail']])
    checkRefused(
      t,
      await runCommand(callers, command, env),
      /^What answers at http:\/\/127\.0\.0\.1:\d+ serves callers: .*admin\.port .*8081/,
    );
  const proxied = await answerWith('6b1f9d0e-4f0c-4d37-a2d0-0f6b2f3a2f6e');
  checkRefused(t, await runCommand(proxied, ['accounts', 'show', 'a'], env), /^There is nothing there\.$/m);
});

void t.test('a file that was left behind by a gateway is not believed', async (t) => {
  const folder = await seemingGateway(t, ({ socket }) => socket.destroy(), process.pid + 1);
  const end = await runCommand(folder, ['accounts', 'create', 'acme', '--plan', 'free', '--json']);
  t.match(end, { code: 0 });
  const store = new Store(join(folder, 'data'));
  t.equal(store.findAccountByName('acme')?.planId, 'free', 'written to the store itself');
  await store.close();
});

void t.test('a gateway that starts or stops is waited for', async (t) => {
  const { folder, run } = commandFolder(t);
  const holder = fork(new URL('../../fixtures/store-holder.js', import.meta.url), [join(folder, 'data')]);
  t.teardown(() => holder.kill('SIGKILL'));
  await once(holder, 'message');
  let ended = false;
  const creating = run('accounts', 'create', 'acme', '--plan', 'free').then((end) => {
    ended = true;
    return end;
  });
  // As long as a command takes.
  t.equal((await run('config', 'check')).code, 0);
  t.equal(ended, false);
  holder.kill('SIGKILL');
  t.match(await creating, { code: 0, stderr: '' });
  t.match(await run('accounts', 'show', 'acme'), { code: 0 });
});

void t.test('a gateway elsewhere is asked with the token of the environment alone', async (t) => {
  const asked: unknown[] = [];
  const folder = await seemingGateway(t, ({ url, headers }, response) => {
    asked.push([url, headers.authorization]);
    response.end('{"data":[],"next":null}');
  });
  const { adminPort } = readGatewayFile(join(folder, 'data'))!;
  const elsewhere = t.testdir({ 'admin-token': `${TOKEN}-of-this-folder` });
  const url = `http://127.0.0.1:${adminPort}`;
  const list = ['accounts', 'list', '--json', '--admin-url', url];
  checkRefused(
    t,
    await runCommand(elsewhere, list),
    /^The token of the gateway at http:\/\/127\.0\.0\.1:\d+ is not known: set TOLLGATE/,
  );
  t.same(asked, []);
  const end = await runCommand(elsewhere, ['accounts', 'list', '--json'], {
    TOLLGATE_ADMIN_TOKEN: TOKEN,
    TOLLGATE_ADMIN_URL: url,
  });
  t.equal(end.code, 0, end.stderr);
  t.same(asked, [['/admin/v1/accounts?limit=1000', `Bearer ${TOKEN}`]]);
  for (const wrong of ['localhost:8081', 'ftp://x', 'http://u:p@x', 'http://x/admin', '']) {
    checkMisused(
      t,
      await runCommand(elsewhere, ['accounts', 'list', '--admin-url', wrong]),
      /Want an address/,
    );
  }
  const misnamed = await runCommand(elsewhere, ['status'], { TOLLGATE_ADMIN_URL: 'nonsense' });
  checkMisused(t, misnamed, /^TOLLGATE_ADMIN_URL: Want an address/);
});

void t.test('what is no token is told in a line', async (t) => {
  const folder = await seemingGateway(t, ({ socket }) => socket.destroy());
  const list = ['accounts', 'list'];
  const short = await runCommand(folder, list, { TOLLGATE_ADMIN_TOKEN: 'short' });
  checkRefused(t, short, /^TOLLGATE_ADMIN_TOKEN is no token: /);
  writeFileSync(join(folder, 'data', 'admin-token'), 'short\n');
  checkRefused(t, await runCommand(folder, list), /admin-token holds no token: /);
});

void t.test('a store that is none stops the command with its reason', async (t) => {
  const { folder, run } = commandFolder(t);
  writeFileSync(join(folder, 'rubbish'), 'x');
  checkRefused(t, await run('accounts', 'list', '--data', 'rubbish'), /rubbish/);
});
