/**
 * The admin interface under hostile input: each route of its own document, each field and parameter; all of
 * it is refused in the one error shape with the field's name, and not a line of the books changes.
 */
import t from 'tap';
import type { Test } from 'tap';
import { runCommand } from '../support/command.js';
import { eventually, startGateway, testSettings, type Gateway } from '../support/gateway.js';
import {
  bytesOf,
  hostileBodies,
  hostileFields,
  hostileQueries,
  type Operation,
} from '../support/hostile-input.js';
import { request, type Answer } from '../support/http.js';

const ROOT = '/admin/v1';
const ACCOUNT = 'acme';
const KEY = 'laptop';
const GROUP = 'research';
const OPERATOR = 'ann';

/**
 * A body that would be done, for each route that takes one: alone what is made wrong in it is why it is
 * refused.
 */
const GOOD_BODIES: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  'POST /admin/v1/accounts': { name: 'fresh', plan: 'ample', credit: '1.00' },
  'POST /admin/v1/accounts/{account}/credit': { amount: '1.00', note: 'n', idempotency_key: 'k' },
  'POST /admin/v1/accounts/{account}/set-group': { group: GROUP },
  'POST /admin/v1/accounts/{account}/set-plan': { plan: 'other' },
  'POST /admin/v1/bulk': {
    accounts: [{ name: 'fresh', plan: 'ample', credit: '1.00', keys: [{ name: 'fresh' }] }],
  },
  'POST /admin/v1/groups': { name: 'fresh', parent: GROUP, tokens_per_day: 5, spend_per_day: '1.00' },
  'POST /admin/v1/groups/{group}/set-limits': { tokens_per_day: 6, spend_per_day: null },
  'POST /admin/v1/keys': { account: ACCOUNT, name: 'fresh' },
  'POST /admin/v1/keys/{key}/rotate': { grace: 0 },
  'POST /admin/v1/keys/{key}/set-limits': { tokens_per_day: 6, spend_per_day: '1.00' },
  'POST /admin/v1/keys/{key}/set-private': { private: true },
  'POST /admin/v1/operators': { name: 'fresh', role: 'viewer', expires_in: 60 },
  'POST /admin/v1/operators/{operator}/rotate': { expires_in: 60 },
  'POST /admin/v1/operators/{operator}/set-role': { role: 'support' },
  'POST /admin/v1/reload': { dry_run: false },
  'POST /admin/v1/upstreams/reset': { model: 'mock-model' },
  'POST /admin/v1/cache/clear': { model: 'mock-model' },
  'PUT /admin/v1/log': { level: 'info', access_log: false, sample_percent: 100 },
};

const METHODS = ['GET', 'POST', 'DELETE', 'PUT', 'PATCH', 'OPTIONS'];

interface AdminRoute {
  readonly name: string;
  readonly method: string;
  /** With variables in it. */
  readonly template: string;
  readonly path: string;
  readonly operation: Operation;
}

interface House {
  readonly gateway: Gateway;
  readonly routes: readonly AdminRoute[];
  readonly send: (method: string, path: string, body?: unknown) => Promise<Answer>;
}

async function openHouse(t: Test): Promise<House> {
  const plans = [{ id: 'other', requests_per_minute: 5, calls_per_day: 5 }];
  const gateway = await startGateway(t, { config: testSettings('echo:', { plans }) });
  const { admin } = gateway;
  const send = (method: string, path: string, body?: unknown): Promise<Answer> =>
    request({ port: admin.port, method, path, body, headers: { authorization: `Bearer ${admin.token}` } });
  const done = async (path: string, body: object): Promise<Record<string, string>> => {
    const answer = await send('POST', `${ROOT}${path}`, body);
    t.equal(answer.status, 200, answer.body);
    return answer.json() as Record<string, string>;
  };
  await done('/groups', { name: GROUP, tokens_per_month: 1_000_000 });
  await done('/accounts', { name: ACCOUNT, plan: 'ample', credit: '10.00', group: GROUP });
  await done('/accounts', { name: 'idle', plan: 'other' });
  await done('/operators', { name: OPERATOR, role: 'viewer' });
  const { key } = await done('/keys', { account: ACCOUNT, name: KEY });
  t.equal((await gateway.chat(key!, 'Hello')).status, 200);
  await eventually('the call in the books', async () => {
    const usage = await send('GET', `${ROOT}/usage`);
    return usage.body.includes('"calls":1') ? true : undefined;
  });
  const document = (await send('GET', `${ROOT}/openapi.json`)).json() as {
    paths: Record<string, Record<string, Operation>>;
  };
  const routes = Object.entries(document.paths).flatMap(([template, methods]) =>
    Object.entries(methods).map(([word, operation]) => {
      const method = word.toUpperCase();
      const path = template
        .replace('{account}', ACCOUNT)
        .replace('{key}', KEY)
        .replace('{group}', GROUP)
        .replace('{operator}', OPERATOR);
      return { name: `${method} ${template}`, method, template, path, operation };
    }),
  );
  return { gateway, routes, send };
}

/**
 * All that the lists tell, and what the audit reads on the disk. What passes by itself with time is left out.
 */
async function booksOf({ gateway, send }: House): Promise<object> {
  const read = async (path: string): Promise<unknown> => {
    const answer = await send('GET', `${ROOT}${path}`);
    return answer.status === 200 ? answer.json() : new Error(`${path} ${answer.body}`);
  };
  const { data: accounts } = (await read('/accounts?limit=1000')) as {
    data: { name: string; requests_this_minute?: number }[];
  };
  for (const account of accounts) delete account.requests_this_minute;
  const audit = await runCommand(gateway.folder, ['audit', '--json']);
  return {
    accounts,
    keys: await read('/keys?limit=1000'),
    groups: await read('/group-tree?limit=1000'),
    operators: await read('/operators'),
    credits: await Promise.all(
      accounts.map(({ name }) => read(`/accounts/${encodeURIComponent(name)}/credits`)),
    ),
    usage: await Promise.all(['account', 'key', 'model'].map((by) => read(`/usage?by=${by}`))),
    plans: await read('/plans'),
    models: await read('/models'),
    audit: audit.json(),
  };
}

/**
 * What is wrong with a refusal; undefined where it is in the one shape, by the caller's fault, and its
 * message has `names` in it. Not asserted one by one: there are thousands, some with names that no terminal
 * should see.
 */
function faultIn({ status, body }: Answer, names = '', wanted = [400, 404]): string | undefined {
  const text = `${status} ${body.slice(0, 300)}`;
  if (!wanted.includes(status)) return text;
  const view = JSON.parse(body) as { error: Readonly<Record<string, unknown>> };
  const isOfShape =
    Object.keys(view).join() === 'error' &&
    Object.keys(view.error).sort().join() === 'code,message,type' &&
    Object.values(view.error).every((value) => typeof value === 'string') &&
    view.error.type === 'invalid_request_error';
  // In bulk the item's place may stand before the message: "accounts[0]: name must …".
  return isOfShape && String(view.error.message).replaceAll(']: ', '].').includes(names) ? undefined : text;
}

/** Faults by what was sent. */
class Faults {
  readonly found: string[] = [];
  asked = 0;

  note(sent: string, fault: string | undefined): void {
    this.asked += 1;
    if (fault !== undefined) this.found.push(`${JSON.stringify(sent)}: ${JSON.stringify(fault)}`);
  }
}

void t.test('nothing hostile is done, and each refusal names what was wrong', async (t) => {
  const house = await openHouse(t);
  const { gateway, routes, send } = house;
  const before = await booksOf(house);
  const faults = new Faults();
  t.ok(routes.length > 20, 'the document has routes');
  const withBody = routes.filter(({ operation }) => operation.requestBody !== undefined);
  t.same(withBody.map(({ name }) => name).sort(), Object.keys(GOOD_BODIES).sort(), 'each has a good body');

  for (const { name, method, path, operation } of routes) {
    for (const { what, query, names } of hostileQueries(operation.parameters)) {
      faults.note(`${name} ${what}`, faultIn(await send(method, `${path}?${query}`), names));
    }
    if (method === 'GET') continue;
    const good = GOOD_BODIES[name] ?? {};
    const schema = operation.requestBody?.content['application/json'].schema;
    for (const { what, body, names } of [
      ...hostileBodies(good),
      ...(schema === undefined ? [] : hostileFields(schema, good)),
    ]) {
      faults.note(`${name} ${what}`, faultIn(await send(method, path, bytesOf(body)), names));
    }
    const large = Buffer.alloc((name.endsWith('/bulk') ? 8 * 1_024 : 64) * 1_024 + 1, 0x20);
    faults.note(`${name} too large`, faultIn(await send(method, path, large), 'bytes', [413]));
  }
  t.same(faults.found, []);
  t.ok(faults.asked > 500, `${faults.asked} requests`);
  t.same(await booksOf(house), before, 'the books are as they were');
  t.equal(await gateway.stop(), 0);
  t.same(
    gateway.log().filter((line) => /error|exception/i.test(line)),
    [],
    'nothing failed inside',
  );
});

/** Of hosts, a gateway that shares with none tells that it does not, whatever the name. */
const withoutSharing = (template: string): number[] => (template.includes('{host}') ? [409] : []);

void t.test('no path leads elsewhere', async (t) => {
  const house = await openHouse(t);
  const { gateway, routes, send } = house;
  const before = await booksOf(house);
  const faults = new Faults();
  const templates = [...new Set(routes.map(({ template }) => template))];
  for (const template of templates) {
    const own = routes.filter((route) => route.template === template);
    for (const method of METHODS.filter((word) => own.every((route) => route.method !== word))) {
      const answer = await send(method, own[0]!.path);
      faults.note(`${method} ${template}`, faultIn(answer, method, [405]));
      t.same(answer.headers.allow?.split(', ').sort(), own.map((route) => route.method).sort());
    }
    for (const suffix of ['/', '/x', '%00', '%', '%ff', '%2f']) {
      const answer = await send(own[0]!.method, own[0]!.path + suffix);
      // It may be the name of something that only other methods are for, or that there is not.
      faults.note(`${template}${suffix}`, faultIn(answer, '', [400, 404, 405, ...withoutSharing(template)]));
    }
    if (!template.includes('{')) continue;
    for (const id of [
      ...['', '%', '%zz', '%ff', '%00', '%ed%a0%bd', '%e2%80%ae', '%20', '.', '..%2f', '__proto__'],
      ...[
        'constructor',
        'ac%6de%00',
        'acct_0000000000000000',
        'x'.repeat(3 * 1024),
        'x'.repeat(10 * 1024),
        '*',
        '%25',
        "'--",
      ],
    ]) {
      for (const { method, name } of own) {
        const body = method === 'GET' ? undefined : GOOD_BODIES[name];
        const refusals = [400, 404, ...withoutSharing(template)];
        const answer = await send(method, template.replace(/\{\w+\}/, id), body);
        faults.note(`${name} of ${id}`, faultIn(answer, '', refusals));
      }
    }
  }
  t.same(faults.found, []);
  t.same(await booksOf(house), before, 'the books are as they were');
  t.equal(await gateway.stop(), 0);
});

void t.test('names that only look odd are names', async (t) => {
  const { gateway, send } = await openHouse(t);
  for (const name of [
    '__proto__',
    'constructor',
    'toString',
    'שלום',
    '日本 🚀',
    '../x',
    "'; --",
    '%00',
    'a/b',
  ]) {
    const at = `${ROOT}/accounts/${encodeURIComponent(name)}`;
    const made = await send('POST', `${ROOT}/accounts`, { name, plan: 'ample', credit: '1.00' });
    t.match(made, { status: 200 }, name);
    t.match((await send('POST', `${at}/credit`, { amount: '0.50', note: name })).json(), { balance: '1.50' });
    t.match((await send('GET', at)).json(), { name, balance: '1.50' });
    t.match((await send('GET', `${at}/credits`)).json(), { data: [{}, { note: name }] });
    const found = await send('GET', `${ROOT}/accounts?search=${encodeURIComponent(name)}`);
    t.match(found.json(), { data: [{ name }] });
    const key = (await send('POST', `${ROOT}/keys`, { account: name, name })).json() as { key: string };
    t.equal((await gateway.chat(key.key, 'Hello')).status, 200);
  }
  t.equal(await gateway.stop(), 0);
  t.match(await runCommand(gateway.folder, ['audit']), { code: 0 });
});
