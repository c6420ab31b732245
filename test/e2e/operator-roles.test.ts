/**
 * Operators at a gateway that runs: every route with every role, by request, is allowed or refused as it is
 * declared, and a refusal changes nothing; tokens end in all processes and on all hosts; commands.
 */
import t, { type Test } from 'tap';
import type { CreatedOperatorView, OperatorView } from '#src/admin/operator-routes.js';
import { ROOT } from '#src/admin/addresses.js';
import { OTHER_ROUTES } from '#src/admin/other-routes.js';
import { ADMIN_ROUTES } from '#src/admin/routes.js';
import { type Role, ROLES } from '#src/core/roles.js';
import { runCommand } from '../support/command.js';
import { checkError } from '../support/error-answer.js';
import { eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import { request, type Answer } from '../support/http.js';
import { NO_REDIS, startRedis } from '../support/redis-server.js';

/** Bodies that would change something, if the role allowed it. */
const BODIES: Readonly<Record<string, object>> = {
  'POST /accounts': { name: 'fresh', plan: 'ample', credit: '1.00' },
  'POST /accounts/{account}/credit': { amount: '1.00', note: 'n' },
  'POST /accounts/{account}/set-plan': { plan: 'other' },
  'POST /accounts/{account}/set-group': { group: null },
  'POST /bulk': { accounts: [{ name: 'fresh', plan: 'ample', keys: [{ name: 'fresh' }] }] },
  'POST /groups': { name: 'fresh' },
  'POST /groups/{group}/set-limits': { tokens_per_day: 6 },
  'POST /keys': { account: 'acme', name: 'fresh' },
  'POST /keys/{key}/set-limits': { tokens_per_day: 6 },
  'POST /keys/{key}/set-private': { private: true },
  'POST /operators': { name: 'fresh', role: 'admin' },
  'POST /operators/{operator}/set-role': { role: 'admin' },
  'PUT /log': { level: 'debug' },
};
const NAMES: Readonly<Record<string, string>> = {
  account: 'acme',
  key: 'laptop',
  group: 'empty',
  operator: 'viewer',
};

type Send = (method: string, path: string, body?: unknown) => Promise<Answer>;

const sendAs =
  ({ admin }: Gateway, token: string): Send =>
  (method, path, body) =>
    request({ port: admin.port, method, path, body, headers: { authorization: `Bearer ${token}` } });

async function createOperator(t: Test, { admin }: Gateway, body: object): Promise<CreatedOperatorView> {
  const answer = await admin.send('POST', `${ROOT}/operators`, body);
  t.equal(answer.status, 200, answer.body);
  return answer.json() as CreatedOperatorView;
}

/** What the lists tell, but for times of use. */
async function stateOf({ admin }: Gateway): Promise<unknown> {
  const paths = ['/accounts', '/accounts/acme/credits', '/keys', '/group-tree', '/operators', '/log'];
  const views = await Promise.all(paths.map((path) => admin.send('GET', `${ROOT}${path}`)));
  return views.map(
    ({ body }) =>
      JSON.parse(body, (name, value: unknown) => (name === 'last_used' ? null : value)) as unknown,
  );
}

function checkRefused(t: Test, answer: Answer, role: Role, roles: readonly Role[], what: string): void {
  const message = checkError(t, answer, 'insufficient_role', what);
  for (const wanted of roles) t.match(message, wanted, what);
  t.match(message, `has the role ${role}`, what);
}

void t.test('every route with every role', async (t) => {
  const plans = [{ id: 'other', requests_per_minute: 5, calls_per_day: 5 }];
  const gateway = await startGateway(t, { config: testSettings('echo:', { plans }) });
  const { admin } = gateway;
  for (const [path, body] of [
    ['/accounts', { name: 'acme', plan: 'ample', credit: '10.00' }],
    ['/keys', { account: 'acme', name: 'laptop' }],
    ['/groups', { name: 'empty' }],
  ] as const) {
    t.equal((await admin.send('POST', `${ROOT}${path}`, body)).status, 200);
  }
  const tokens = new Map<Role, string>();
  for (const role of ROLES) tokens.set(role, (await createOperator(t, gateway, { name: role, role })).token);
  const before = await stateOf(gateway);
  const refused = new Map<Role, number>();

  for (const { method, path, roles } of ADMIN_ROUTES) {
    const at = `${ROOT}${path.replace(/\{(\w+)\}/, (_, noun: string) => NAMES[noun] ?? 'nobody')}`;
    for (const [role, token] of tokens) {
      if (roles.includes(role)) continue;
      const answer = await sendAs(gateway, token)(
        method,
        at,
        method === 'GET' ? undefined : BODIES[`${method} ${path}`],
      );
      checkRefused(t, answer, role, roles, `${role}: ${method} ${path}`);
      refused.set(role, (refused.get(role) ?? 0) + 1);
    }
  }
  t.same(await stateOf(gateway), before, 'what was refused changed nothing');
  t.ok(refused.get('viewer')! > 20 && refused.get('support')! > 10 && refused.get('finance')! > 10);
  t.equal(refused.get('admin'), undefined);

  // Of somebody who is not there, and with nothing in the body: what is allowed may fail with that.
  for (const { method, path, roles } of ADMIN_ROUTES) {
    const at = `${ROOT}${path.replace(/\{\w+\}/, 'nobody')}`;
    for (const role of roles) {
      const { status, body } = await sendAs(gateway, tokens.get(role)!)(method, at);
      t.ok(
        [200, 400, 404, 409].includes(status),
        `${role}: ${method} ${path}: ${status} ${body.slice(0, 200)}`,
      );
    }
  }

  for (const { method, path, roles } of OTHER_ROUTES) {
    const at = path.replace('*', 'nothing.js');
    const { status } = await request({ port: admin.port, method, path: at, headers: {} });
    if (roles === 'anyone') {
      t.notOk(status === 403 || (status === 401 && !path.includes('*')), `${method} ${path}: ${status}`);
      continue;
    }
    t.equal(status, 401, `${method} ${path} without a token`);
    for (const [role, token] of tokens) {
      const leaving = new AbortController();
      const answer = await fetch(`http://127.0.0.1:${admin.port}${at}`, {
        method,
        headers: { authorization: `Bearer ${token}` },
        signal: leaving.signal,
      });
      const what = `${role}: ${method} ${path}: ${answer.status}`;
      if (roles.includes(role)) t.ok([200, 400].includes(answer.status), what);
      else t.equal(answer.status, 403, what);
      leaving.abort();
    }
  }
  const document = (await sendAs(gateway, tokens.get('viewer')!)('GET', `${ROOT}/openapi.json`)).json() as {
    paths: Record<string, Record<string, { 'x-tollgate-roles': Role[]; responses: Record<string, unknown> }>>;
  };
  for (const { method, path, roles } of ADMIN_ROUTES) {
    const operation = document.paths[`${ROOT}${path}`]![method.toLowerCase()]!;
    t.same(operation['x-tollgate-roles'], roles);
    t.equal('403' in operation.responses, roles.length < ROLES.length, `${method} ${path}`);
  }
  t.equal(await gateway.stop(), 0);
});

/** Watches the status; resolves with the events until the gateway ends the stream. */
async function watch(
  { admin }: Gateway,
  headers: Readonly<Record<string, string>>,
): Promise<() => Promise<string>> {
  const answer = await fetch(`http://127.0.0.1:${admin.port}${ROOT}/live`, {
    headers,
    signal: AbortSignal.timeout(60_000),
  });
  if (answer.status !== 200) throw new Error(`live: ${answer.status}`);
  return () => answer.text();
}

void t.test('a token that ends, ends in all processes, with its sessions and live pages', async (t) => {
  const gateway = await startGateway(t, { config: testSettings('echo:', { processes: 2 }) });
  const { admin } = gateway;
  const { token } = await createOperator(t, gateway, { name: 'ann', role: 'support' });
  const other = await createOperator(t, gateway, { name: 'bob', role: 'viewer', expires_in: 2 });
  const headers = { 'x-tollgate-console': '1' };
  const signedIn = await request({
    port: admin.port,
    method: 'POST',
    path: '/admin/session',
    body: { token },
    headers,
  });
  t.match(signedIn.json(), { signed_in: true, who: 'ann', role: 'support' });
  const cookie = /^[^;]+/.exec(signedIn.headers['set-cookie']?.[0] ?? '')![0];
  const bySession = (): Promise<Answer> =>
    request({ port: admin.port, method: 'GET', path: `${ROOT}/status`, headers: { cookie } });
  t.equal((await bySession()).status, 200);
  const watched = await Promise.all(
    [{ cookie }, { authorization: `Bearer ${token}` }].map((as) => watch(gateway, as)),
  );

  t.equal((await admin.send('POST', `${ROOT}/operators/ann/disable`)).status, 200);
  checkError(t, await sendAs(gateway, token)('GET', `${ROOT}/status`), 'invalid_api_key', 'at once');
  checkError(t, await bySession(), 'missing_api_key', 'the session too');
  for (const events of await Promise.all(watched.map((rest) => rest()))) t.match(events, /^event: history/);
  await eventually('the token that expires', async () => {
    const { status } = await sendAs(gateway, other.token)('GET', `${ROOT}/status`);
    return status === 401 ? true : undefined;
  });

  const former = gateway.pid();
  process.kill(former, 'SIGKILL');
  const kept = await createAfter(gateway, former);
  checkError(t, await sendAs(gateway, token)('GET', `${ROOT}/status`), 'invalid_api_key', 'elsewhere');
  t.equal((await sendAs(gateway, kept)('GET', `${ROOT}/status`)).status, 200);
  t.equal((await admin.send('POST', `${ROOT}/operators/ann/enable`)).status, 200);
  t.equal((await sendAs(gateway, token)('GET', `${ROOT}/status`)).status, 200, 'enabled again');
  t.equal(await gateway.stop(), 0);
});

/** Makes an operator as soon as another process than `former` has the interface. */
function createAfter(gateway: Gateway, former: number): Promise<string> {
  return eventually('another process with the interface', async () => {
    if (gateway.pid() === former) return undefined;
    const answer = await gateway.admin.send('POST', `${ROOT}/operators`, { name: 'eve', role: 'viewer' });
    return answer.status === 200 ? (answer.json() as CreatedOperatorView).token : undefined;
  });
}

void t.test('operators of two hosts', NO_REDIS, async (t) => {
  const redis = await startRedis(t);
  const config = testSettings('echo:', { sharing: { url: redis.url } });
  const [first, second] = await Promise.all([startGateway(t, { config }), startGateway(t, { config })]);
  const there = async (token: string, path: string, status: number): Promise<void> => {
    const sinceMs = performance.now();
    await eventually(`${status} at the other host`, async () => {
      const answer = await sendAs(second, token)('GET', `${ROOT}${path}`);
      return answer.status === status ? true : undefined;
    });
    const tookMs = performance.now() - sinceMs;
    t.comment(`${status} for ${path} after ${tookMs.toFixed(0)} ms`);
    // A second where the machine does nothing else.
    t.ok(tookMs < 20_000);
  };
  const { token } = await createOperator(t, first, { name: 'ann', role: 'viewer' });
  await there(token, '/accounts', 200);
  await there(token, '/operators', 403);
  t.equal((await first.admin.send('POST', `${ROOT}/operators/ann/set-role`, { role: 'admin' })).status, 200);
  await there(token, '/operators', 200);
  const rotated = (await second.admin.send('POST', `${ROOT}/operators/ann/rotate`, {})).json() as {
    token: string;
  };
  checkError(t, await sendAs(second, token)('GET', `${ROOT}/status`), 'invalid_api_key', 'where it was done');
  await there(rotated.token, '/operators', 200);
  t.equal((await first.admin.send('DELETE', `${ROOT}/operators/ann`)).status, 200);
  await there(rotated.token, '/operators', 401);
  t.same((await second.admin.send('GET', `${ROOT}/operators`)).json(), { data: [], next: null });
  await Promise.all([first.stop(), second.stop()]);
});

void t.test('commands: with a gateway, as an operator, and without a gateway', async (t) => {
  const gateway = await startGateway(t, { config: testSettings('echo:') });
  const run = (args: readonly string[], token?: string) =>
    runCommand(gateway.folder, args, token === undefined ? {} : { TOLLGATE_ADMIN_TOKEN: token });
  const created = await run(['operators', 'create', 'ann', '--role', 'support', '--expires', '90d']);
  t.equal(created.code, 0, created.stderr);
  const token = /tgop_[\w-]{43}/.exec(created.stdout)![0];
  t.match(created.stdout, /role +support/);
  t.match(await run(['operators', 'list']), { code: 0, stdout: /ann +op_\w+ +support +yes/ });
  t.match(await run(['accounts', 'list'], token), { code: 0 });
  const denied = await run(['accounts', 'create', 'acme', '--plan', 'ample'], token);
  t.match(denied, { code: 1, stderr: /needs the role admin.*has the role support/ });
  t.match(await run(['operators', 'create', 'b', '--role', 'root']), { code: 2, stderr: /viewer/ });
  t.match(await run(['operators', 'create', 'b', '--role', 'viewer', '--expires', 'soon']), { code: 2 });
  t.match(await run(['operators', 'set-role', 'ann', '--role', 'admin']), { code: 0, stdout: /role +admin/ });
  t.match(await run(['accounts', 'create', 'acme', '--plan', 'ample'], token), { code: 0 });
  t.match(await run(['operators', 'disable', 'ann']), { code: 0, stdout: /active +no/ });
  t.match(await run(['accounts', 'list'], token), { code: 1, stderr: /admits nobody/ });
  t.equal(await gateway.stop(), 0);

  t.match(await run(['operators', 'enable', 'ann']), { code: 0, stdout: /active +yes/ });
  const rotated = await run(['operators', 'rotate', 'ann', '--expires', '2099-01-31', '--json']);
  t.match(rotated.json(), { name: 'ann', expires: Date.UTC(2099, 0, 31) / 1_000 });
  t.match(await run(['changes', 'list', '--target', 'ann']), { stdout: /expires .* → 2099-01-31 00:00/ });
  const shown = (await run(['operators', 'show', 'ann', '--json'])).json() as OperatorView & {
    token?: string;
  };
  t.same([shown.role, shown.token], ['admin', undefined]);
  t.match(await run(['operators', 'delete', 'ann', '--yes']), { code: 0, stdout: /Deleted op_/ });
  t.match(await run(['operators', 'list']), { code: 0, stdout: /no operators/ });
});
