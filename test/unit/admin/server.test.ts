/** What HTTP adds to the interface: who is let in, how much is read, how it is answered. */
import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { OTHER_ROUTES } from '#src/admin/other-routes.js';
import { ADMIN_BODY_BYTES_MAX } from '#src/admin/route.js';
import { ContentsReader } from '#src/call-log/contents-writer.js';
import { callReaderOf } from '#src/call-log/call-reader.js';
import { startAdmin } from '#src/admin/server.js';
import { ownRegistryService } from '#src/registry/registry.js';
import { AccountHistory } from '#src/telemetry/account-history.js';
import { History } from '#src/telemetry/history.js';
import { checkError } from '../../support/error-answer.js';
import { startAdminHouse, TOKEN } from './support.js';

void t.test('health and readiness are told to anybody', async (t) => {
  const house = await startAdminHouse(t);
  const open = { headers: {} };
  const healthy = await house.send('GET', '/healthz', undefined, open);
  t.equal(healthy.status, 200);
  t.same(healthy.json(), { status: 'ok', pid: process.pid });
  t.equal(healthy.headers['content-type'], 'application/json');
  const head = await house.send('HEAD', '/healthz', undefined, open);
  t.match(head, { status: 200, body: '' });
  t.equal(head.headers['content-length'], String(healthy.body.length), 'the length of what GET answers');

  t.match(await house.send('GET', '/readyz', undefined, open), { status: 200, body: '{"status":"ready"}' });
  house.ready = false;
  t.match(await house.send('GET', '/readyz', undefined, open), {
    status: 503,
    body: '{"status":"not ready"}',
  });
  t.match(await house.send('HEAD', '/readyz', undefined, open), { status: 503, body: '' });
  t.equal((await house.send('GET', '/healthz', undefined, open)).status, 200, 'alive all the same');
});

void t.test('everything else wants the token', async (t) => {
  const house = await startAdminHouse(t);
  const authorizations: [string | undefined, 'missing_api_key' | 'invalid_api_key'][] = [
    [undefined, 'missing_api_key'],
    ['', 'missing_api_key'],
    ['Bearer', 'missing_api_key'],
    ['Bearer   ', 'missing_api_key'],
    [`Basic ${TOKEN}`, 'missing_api_key'],
    [TOKEN, 'missing_api_key'],
    ['Bearer wrong', 'invalid_api_key'],
    [`Bearer ${TOKEN}x`, 'invalid_api_key'],
    [`Bearer ${TOKEN.slice(1)}`, 'invalid_api_key'],
    [`Bearer ${TOKEN.toUpperCase()}`, 'invalid_api_key'],
    [`Bearer ${'x'.repeat(600)}`, 'invalid_api_key'],
  ];
  for (const [authorization, code] of authorizations) {
    const headers = authorization === undefined ? {} : { authorization };
    for (const [method, path] of [
      ['GET', '/admin/v1/accounts'],
      ['POST', '/admin/v1/accounts'],
      ['GET', '/admin/v1/status'],
      ['GET', '/nowhere'],
      ['POST', '/healthz'],
    ] as const) {
      const body = method === 'POST' ? { name: 'x', plan: 'free' } : undefined;
      house.clock.nowMs += 1_000;
      const answer = await house.send(method, path, body, { headers });
      checkError(t, answer, code, `${method} ${path} with ${authorization}`);
      t.notMatch(answer.body, TOKEN, 'the token is not told');
    }
  }
  t.equal(house.registry.accounts.list(0, 1).items.length, 0, 'and nothing was done');
  for (const scheme of ['Bearer ', 'bearer ', 'BEARER   ']) {
    const headers = { authorization: `${scheme}${TOKEN}` };
    t.equal((await house.send('GET', '/admin/v1/accounts', undefined, { headers })).status, 200, scheme);
  }
  t.same(house.log.lines, []);
});

void t.test('five wrong tokens a second are answered as such, the right one always', async (t) => {
  const house = await startAdminHouse(t);
  const wrong = { headers: { authorization: 'Bearer wrong' } };
  const get = (more?: object) => house.send('GET', '/admin/v1/accounts', undefined, more);
  for (let at = 0; at < 5; at++) checkError(t, await get(wrong), 'invalid_api_key', `wrong ${at}`);
  const refused = await get(wrong);
  t.match(checkError(t, refused, 'rate_limit_exceeded', 'the sixth'), /^Too many wrong tokens/);
  t.equal(refused.headers['retry-after'], '1');
  t.equal((await get()).status, 200, 'the operator behind the same address goes on');
  checkError(t, await get({ headers: {} }), 'missing_api_key', 'no token is no wrong one');
  house.clock.nowMs += 1_000;
  checkError(t, await get(wrong), 'invalid_api_key', 'a second later');
});

void t.test('HEAD answers as GET without the body', async (t) => {
  const house = await startAdminHouse(t);
  const get = await house.send('GET', '/admin/v1/plans');
  const head = await house.send('HEAD', '/admin/v1/plans');
  t.match(head, { status: 200, body: '' });
  t.equal(head.headers['content-length'], String(Buffer.byteLength(get.body)));
  t.match(await house.send('HEAD', '/admin/v1/nowhere'), { status: 404, body: '' });
});

void t.test('another method at a path names those that it has', async (t) => {
  const house = await startAdminHouse(t);
  const paths = new Set(OTHER_ROUTES.map(({ path }) => path).filter((path) => !path.includes('*')));
  for (const path of paths) {
    const methods: readonly string[] = OTHER_ROUTES.flatMap((route) =>
      route.path === path ? [route.method] : [],
    );
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'].filter((each) => !methods.includes(each))) {
      const rejected = await house.send(method, path);
      checkError(t, rejected, 'method_not_allowed', `${method} ${path}`);
      t.equal(rejected.headers.allow, methods.join(', '), path);
    }
  }
});

void t.test('a body is read up to its bound', async (t) => {
  const house = await startAdminHouse(t);
  const padded = (bytes: number, name: string): string =>
    JSON.stringify({ name, plan: 'free' }).padEnd(bytes);
  const fits = await house.send('POST', '/admin/v1/accounts', padded(ADMIN_BODY_BYTES_MAX, 'fits'));
  t.equal(fits.status, 200);
  const over = await house.send('POST', '/admin/v1/accounts', padded(ADMIN_BODY_BYTES_MAX + 1, 'over'));
  t.match(checkError(t, over, 'request_too_large', 'one byte more'), String(ADMIN_BODY_BYTES_MAX));
  t.throws(() => house.registry.accounts.find('over'), { code: 'not_found' });
  const chunked = await fetch(`http://127.0.0.1:${house.port}/admin/v1/accounts`, {
    method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}` },
    body: new ReadableStream({
      start(controller) {
        const bytes = Buffer.from(padded(2_000, 'chunked'));
        for (let at = 0; at < bytes.length; at += 500) controller.enqueue(bytes.subarray(at, at + 500));
        controller.close();
      },
    }),
    duplex: 'half',
  });
  t.equal(chunked.status, 200, 'in chunks, and without content-type');
  t.equal(house.registry.accounts.find('chunked').record.planId, 'free');
});

void t.test('a body needs no content-type and must be JSON', async (t) => {
  const house = await startAdminHouse(t);
  const bytes = (text: string): RequestInit => ({
    method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}` },
    body: Buffer.from(text),
  });
  const at = `http://127.0.0.1:${house.port}/admin/v1/accounts`;
  t.equal((await fetch(at, bytes('{"name":"bare","plan":"free"}'))).status, 200);
  const latin1 = Buffer.from('{"name":"\xff","plan":"free"}', 'latin1');
  t.equal(
    checkError(t, await house.send('POST', '/admin/v1/accounts', latin1), 'invalid_parameters', 'Latin-1'),
    'the body must be UTF-8',
  );
  const answer = await house.send('POST', '/admin/v1/accounts', '{"name":');
  t.match(checkError(t, answer, 'invalid_parameters', 'cut'), /^the body must be JSON: /);
});

void t.test('answers are not to be kept, and their connection may be', async (t) => {
  const house = await startAdminHouse(t);
  const { headers } = await house.send('GET', '/admin/v1/accounts');
  t.equal(headers['cache-control'], 'no-store');
  t.equal(headers['content-type'], 'application/json');
});

void t.test('a bug is an answer and a line of the log', async (t) => {
  const house = await startAdminHouse(t);
  house.store.findAccountByName = () => {
    throw new Error('the store burns');
  };
  const answer = await house.send('GET', '/admin/v1/accounts/acme');
  const message = checkError(t, answer, 'internal_error', 'a throw');
  t.notMatch(message, /burns/, 'the inside is not told');
  t.same(house.log.lines, ['error admin request failed']);
  t.equal((await house.send('GET', '/admin/v1/accounts')).status, 200, 'and it goes on');
});

void t.test(
  'a bug outside of the routes is the response of its request, and the gateway goes on',
  async (t) => {
    const house = await startAdminHouse(t);
    const burnt = (): never => {
      throw new Error('the house burns');
    };
    for (const name of ['ready', 'oidc', 'publicPort', 'metrics'] as const)
      Object.defineProperty(house, name, { get: burnt });
    house.history.spans = burnt;
    const console = { 'x-tollgate-console': '1' };
    const bearer = { authorization: `Bearer ${TOKEN}` };
    const call = { key: 'sk-x', request: {} };
    for (const [method, path, body, headers] of [
      ['GET', '/readyz', undefined, bearer],
      ['GET', '/metrics', undefined, bearer],
      ['GET', '/admin/session', undefined, {}],
      ['GET', '/admin/session/oidc', undefined, {}],
      ['GET', '/admin/playground', undefined, bearer],
      ['POST', '/admin/playground', call, bearer],
      ['GET', '/admin/v1/live', undefined, bearer],
    ] as const) {
      const before = house.log.lines.length;
      const response = await house.send(method, path, body, { headers: { ...console, ...headers } });
      t.notMatch(
        checkError(t, response, 'internal_error', `${method} ${path}`),
        /burns/,
        'the inside is not told',
      );
      t.same(house.log.lines.slice(before), ['error admin request failed'], `${method} ${path}`);
    }
    t.equal((await house.send('GET', '/admin/v1/accounts')).status, 200, 'and it goes on');
  },
);

void t.test('a warning is one header, whatever the reason that it tells', async (t) => {
  const house = await startAdminHouse(t);
  house.registry.record = () => {
    throw new Error('the disk says "no" \\\r\nset-cookie: own=1\r\n\r\nnö');
  };
  const answer = await house.send('PUT', '/admin/v1/log', { level: 'warn' });
  t.equal(answer.status, 200);
  t.equal(
    answer.headers.warning,
    '199 tollgate "The change is made, and could not be recorded among the changes: ' +
      `the disk says 'no' '??set-cookie: own=1????n?"`,
  );
  t.equal(answer.headers['set-cookie'], undefined);
  t.match(answer.json(), { level: 'warn' });
});

void t.test('an address that cannot be had is named', async (t) => {
  const house = await startAdminHouse(t);
  const options = {
    host: '203.0.113.1',
    port: 9,
    allowedHosts: [],
    token: TOKEN,
    quotaTimezone: '+08:00',
    oidc: () => undefined,
    registry: house.registry,
    flushBooks: () => Promise.resolve(true),
    flushCalls: () => undefined,
    service: ownRegistryService(house.registry),
    readiness: () => true,
    status: () => ({}),
    reload: house.reload,
    resetUpstreams: () => Promise.resolve(),
    clearCache: () => Promise.resolve(),
    changeLog: () => ({ level: 'info' as const, access_log: false, sample_percent: 100 }),
    settings: () => [],
    calls: callReaderOf(house.dataPath),
    contents: new ContentsReader(house.dataPath),
    hosts: undefined,
    live: { history: new History(), accounts: new AccountHistory(), watch: () => () => undefined },
    publicAddress: () => ({ host: '127.0.0.1', port: 1, tls: false }),
    metrics: () => Promise.reject(new Error('not asked for')),
    clock: house.clock,
    log: house.log,
  };
  await t.rejects(startAdmin(options), { message: /cannot listen on 203\.0\.113\.1:9/ });
});

void t.test('an answer that comes later: given, refused, and to nobody', async (t) => {
  const house = await startAdminHouse(t);
  const asked: object[] = [];
  house.reload = async (request) => {
    asked.push(request);
    await new Promise((resolve) => setImmediate(resolve));
    return {
      applied: ['plans.free'],
      restartNeeded: ['workers'],
      problems: request.dryRun ? ['line 1', 'line 2'] : [],
      replacing: request.restart ? 2 : 0,
    };
  };
  const done = await house.send('POST', '/admin/v1/reload');
  t.same(
    [done.status, done.json()],
    [200, { dry_run: false, applied: ['plans.free'], restart_needed: ['workers'] }],
  );
  const refused = await house.send('POST', '/admin/v1/reload', { dry_run: true });
  t.match([refused.status, refused.json()], [400, { error: { message: 'line 1\nline 2' } }]);
  const restarted = await house.send('POST', '/admin/v1/reload', { restart: true });
  t.match(restarted.json(), { replacing: 2 });
  t.same(asked, [
    { dryRun: false, restart: false },
    { dryRun: true, restart: false },
    { dryRun: false, restart: true },
  ]);
  let release: () => void = () => undefined;
  const arrived = new Promise<void>((resolve) => {
    house.reload = () => {
      resolve();
      return new Promise((finish) => {
        release = () => finish({ applied: [], restartNeeded: [], problems: [], replacing: 0 });
      });
    };
  });
  const body = '{}';
  const socket = connect(house.port, '127.0.0.1');
  socket.write(
    `POST /admin/v1/reload HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${TOKEN}\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  );
  await arrived;
  socket.destroy();
  await once(socket, 'close');
  t.equal((await house.send('GET', '/admin/v1/status')).status, 200, 'it has seen that the client left');
  release();
  house.reload = () => Promise.reject(new Error('a bug'));
  t.equal((await house.send('POST', '/admin/v1/reload')).status, 500);
  t.equal((await house.send('GET', '/admin/v1/status')).status, 200, 'and goes on');
});
