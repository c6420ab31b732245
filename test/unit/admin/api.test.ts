/** Every route, good and bad. */
import * as Type from 'typebox';
import t from 'tap';
import type { Test } from 'tap';
import { asPicoUnits } from '#src/core/units.js';
import { checkError, type ErrorName } from '../../support/error-answer.js';
import { defineRoute } from '#src/admin/route.js';
import { ADMIN_ROUTES } from '#src/admin/routes.js';
import { startAdminHouse, type AdminHouse } from './support.js';

const ROOT = '/admin/v1';

interface AccountView {
  readonly id: string;
  readonly balance: string;
}

/** Sends each and expects the refusal: code, then what its message says. */
async function checkRefusals(
  t: Test,
  house: AdminHouse,
  rows: readonly (readonly [string, string, unknown, ErrorName, RegExp])[],
): Promise<void> {
  for (const [method, path, body, code, message] of rows) {
    const answer = await house.send(method, `${ROOT}${path}`, body);
    t.match(
      checkError(t, answer, code, `${method} ${path} ${JSON.stringify([body]).slice(0, 200)}`),
      message,
    );
  }
}

async function made(house: AdminHouse, path: string, body: object): Promise<{ id: string; key?: string }> {
  const answer = await house.send('POST', `${ROOT}${path}`, body);
  if (answer.status !== 200) throw new Error(answer.body);
  return answer.json() as { id: string; key?: string };
}

void t.test('accounts: create, show, list', async (t) => {
  const house = await startAdminHouse(t);
  const answer = await house.send('POST', `${ROOT}/accounts`, {
    name: 'acme',
    plan: 'free',
    credit: '10.00',
  });
  t.equal(answer.status, 200);
  const view = answer.json() as AccountView;
  t.same(view, {
    id: view.id,
    name: 'acme',
    plan: 'free',
    group: null,
    group_name: null,
    active: true,
    balance: '10.00',
    held: '0.00',
    spent: '0.00',
    credited: '10.00',
    uncovered: '0.00',
    calls_today: 0,
    requests_this_minute: 0,
    calls_in_flight: 0,
    quotas: {},
    created: house.clock.nowMs / 1_000,
  });
  for (const name of ['acme', view.id]) {
    t.same((await house.send('GET', `${ROOT}/accounts/${name}`)).json(), view, name);
  }
  const odd = 'Ünï / ? # % &';
  await made(house, '/accounts', { name: odd, plan: 'paid' });
  const found = await house.send('GET', `${ROOT}/accounts/${encodeURIComponent(odd)}`);
  t.match(found.json(), { name: odd, plan: 'paid', balance: '0.00' });
  t.match((await house.send('GET', `${ROOT}/accounts`)).json(), { data: [view, { name: odd }], next: null });
  await checkRefusals(t, house, [
    ['POST', '/accounts', { name: 'acme', plan: 'free' }, 'invalid_parameters', /^name must be unique/],
    ['POST', '/accounts', { name: 'x', plan: 'gold' }, 'invalid_parameters', /^plan must be one of/],
    ['POST', '/accounts', { plan: 'free' }, 'invalid_parameters', /^name must be given$/],
    ['POST', '/accounts', {}, 'invalid_parameters', /^name, plan must be given$/],
    ['POST', '/accounts', undefined, 'invalid_parameters', /^name, plan must be given$/],
    ['POST', '/accounts', { name: 5, plan: 'free' }, 'invalid_parameters', /^name must be string, got 5$/],
    ['POST', '/accounts', { name: 'x', plan: null }, 'invalid_parameters', /^plan must be string, got null$/],
    [
      'POST',
      '/accounts',
      { name: 'x', plan: 'free', credit: 10 },
      'invalid_parameters',
      /^credit must be string, got 10$/,
    ],
    [
      'POST',
      '/accounts',
      { name: 'x', plan: 'free', credti: '1' },
      'invalid_parameters',
      /^unknown field credti, the nearest known one is credit$/,
    ],
    [
      'POST',
      '/accounts',
      '{"name":"x","plan":"free","__proto__":1}',
      'invalid_parameters',
      /^unknown field __proto__$/,
    ],
    ['POST', '/accounts', '[]', 'invalid_parameters', /^the body must be a JSON object, got \[\]$/],
    [
      'POST',
      '/accounts',
      { name: ['x'.repeat(9_999)], plan: 'free' },
      'invalid_parameters',
      /^name must be string, got \["x{98}…$/,
    ],
    ['POST', '/accounts', 'null', 'invalid_parameters', /^the body must be a JSON object, got null$/],
    ['POST', '/accounts', '"x"', 'invalid_parameters', /^the body must be a JSON object, got "x"$/],
    [
      'POST',
      '/accounts?dry=1',
      { name: 'x', plan: 'free' },
      'invalid_parameters',
      /^unknown query parameter dry$/,
    ],
    ['GET', '/accounts/nobody', undefined, 'not_found', /^there is no account nobody/],
    ['GET', '/accounts/acme?x=1', undefined, 'invalid_parameters', /^unknown query parameter x$/],
  ]);
  for (const credit of [
    '',
    'ten',
    '1e3',
    '1,5',
    '+1',
    '01',
    '.5',
    '1.',
    ' 1',
    '1.0000000000001',
    '3000000.01',
    '--1',
  ]) {
    const answer = await house.send('POST', `${ROOT}/accounts`, { name: 'x', plan: 'free', credit });
    t.match(
      checkError(t, answer, 'invalid_parameters', credit),
      /^credit must be a decimal amount such as "10.00"/,
    );
  }
  t.match((await house.send('GET', `${ROOT}/accounts`)).json(), { data: { length: 2 } });
});

void t.test('accounts: credit, plan, standing', async (t) => {
  const house = await startAdminHouse(t);
  const { id } = await made(house, '/accounts', { name: 'acme', plan: 'free', credit: '10.00' });
  const done = async (path: string, body?: object): Promise<unknown> =>
    (await house.send('POST', `${ROOT}/accounts/${path}`, body)).json();
  t.match(await done(`${id}/credit`, { amount: '0.000000000001' }), { balance: '10.000000000001' });
  t.match(await done('acme/credit', { amount: '-2.50', note: 'taken back' }), {
    balance: '7.500000000001',
    credited: '7.500000000001',
  });
  t.match(await done('acme/set-plan', { plan: 'paid' }), { id, plan: 'paid' });
  t.match(await done('acme/disable'), { active: false });
  t.match(await done('acme/disable', {}), { active: false });
  t.match(await done(`${id}/enable`), { active: true });
  await checkRefusals(t, house, [
    ['POST', '/accounts/acme/credit', {}, 'invalid_parameters', /^amount must be given$/],
    ['POST', '/accounts/acme/credit', { amount: '0' }, 'invalid_parameters', /^amount must not be zero$/],
    ['POST', '/accounts/acme/credit', { amount: '-0.00' }, 'invalid_parameters', /^amount must not be zero$/],
    ['POST', '/accounts/acme/credit', { amount: 1 }, 'invalid_parameters', /^amount must be string, got 1$/],
    [
      'POST',
      '/accounts/acme/credit',
      { amount: '1', note: 1 },
      'invalid_parameters',
      /^note must be string, got 1$/,
    ],
    [
      'POST',
      '/accounts/acme/credit',
      { amount: '-8' },
      'invalid_parameters',
      /the balance of 7\.500000000001$/,
    ],
    [
      'POST',
      '/accounts/acme/credit',
      { amount: 'x' },
      'invalid_parameters',
      /^amount must be a decimal amount/,
    ],
    ['POST', '/accounts/nobody/credit', { amount: '1' }, 'not_found', /nobody/],
    [
      'POST',
      '/accounts/acme/set-plan',
      { plan: 'gold' },
      'invalid_parameters',
      /\(free, paid, demo\), got gold$/,
    ],
    ['POST', '/accounts/acme/set-plan', {}, 'invalid_parameters', /^plan must be given$/],
    ['POST', '/accounts/acme/disable', { why: 'x' }, 'invalid_parameters', /^unknown field why$/],
    ['POST', '/accounts/acme/enable', '[]', 'invalid_parameters', /^the body must be a JSON object/],
    ['POST', '/accounts/nobody/enable', {}, 'not_found', /nobody/],
  ]);
  t.match((await house.send('GET', `${ROOT}/accounts/acme`)).json(), {
    balance: '7.500000000001',
    active: true,
  });
});

void t.test('keys', async (t) => {
  const house = await startAdminHouse(t);
  const account = await made(house, '/accounts', { name: 'acme', plan: 'free' });
  const answer = await house.send('POST', `${ROOT}/keys`, { account: 'acme', name: 'laptop' });
  const { id, key } = answer.json() as { id: string; key: string };
  t.match(key, /^sk-[A-Za-z0-9_-]{43}$/);
  const view = {
    id,
    account: account.id,
    account_name: 'acme',
    name: 'laptop',
    prefix: `${key.slice(0, 7)}…`,
    active: true,
    created: house.clock.nowMs / 1_000,
    expires: null,
    expired: false,
    last_used: null,
    requests_per_minute: null,
    calls_per_day: null,
    quotas: {},
    private: false,
    replaced_by: null,
  };
  t.same(answer.json(), { ...view, key });
  t.same((await house.send('GET', `${ROOT}/keys/laptop`)).json(), view);
  t.same((await house.send('GET', `${ROOT}/keys`)).json(), { data: [view], next: null }, 'and never again');
  t.same((await house.send('POST', `${ROOT}/keys/laptop/disable`)).json(), { ...view, active: false });
  t.same((await house.send('POST', `${ROOT}/keys/${id}/enable`, {})).json(), view);
  const other = await made(house, '/accounts', { name: 'other', plan: 'free' });
  for (const name of ['acme', account.id]) {
    t.same((await house.send('GET', `${ROOT}/keys?account=${name}`)).json(), { data: [view], next: null });
  }
  t.same((await house.send('GET', `${ROOT}/keys?account=${other.id}`)).json(), { data: [], next: null });
  await checkRefusals(t, house, [
    ['POST', '/keys', { account: 'acme' }, 'invalid_parameters', /^name must be given$/],
    ['POST', '/keys', { account: 'acme', name: '' }, 'invalid_parameters', /^name must have 1 to 100/],
    [
      'POST',
      '/keys',
      { account: 'acme', name: ['x'] },
      'invalid_parameters',
      /^name must be string, got \["x"\]$/,
    ],
    ['POST', '/keys', { account: 'acme', name: 'x', key }, 'invalid_parameters', /^unknown field key$/],
    ['POST', '/keys', { account: 'nobody', name: 'x' }, 'not_found', /^there is no account nobody/],
    ['GET', '/keys?account=nobody', undefined, 'not_found', /^there is no account nobody/],
    [
      'GET',
      '/keys?acount=acme',
      undefined,
      'invalid_parameters',
      /^unknown query parameter acount, the nearest known one is account$/,
    ],
    ['POST', '/keys/nothing/disable', undefined, 'not_found', /^there is no key nothing/],
    ['POST', '/keys/laptop/enable', { x: 1 }, 'invalid_parameters', /^unknown field x$/],
    ['DELETE', '/keys/nothing', undefined, 'not_found', /^there is no key nothing/],
    ['DELETE', '/keys/laptop', { x: 1 }, 'invalid_parameters', /^unknown field x$/],
  ]);
  t.same((await house.send('DELETE', `${ROOT}/keys/laptop`)).json(), { id, deleted: true });
  t.equal((await house.send('DELETE', `${ROOT}/keys/${id}`)).status, 404);
});

void t.test('lists go on at their cursor', async (t) => {
  const house = await startAdminHouse(t);
  for (const name of ['a', 'b', 'c']) {
    await made(house, '/accounts', { name, plan: 'free' });
    await made(house, '/keys', { account: 'a', name });
  }
  for (const path of ['/accounts?', '/keys?', '/keys?account=a&']) {
    for (const limit of [1, 2, 3, 1_000]) {
      const names: string[] = [];
      let cursor: string | null = '0';
      while (cursor !== null) {
        const answer = await house.send('GET', `${ROOT}${path}limit=${limit}&cursor=${cursor}`);
        const page = answer.json() as { data: { name: string }[]; next: string | null };
        t.ok(page.data.length <= limit && page.data.length > 0);
        names.push(...page.data.map(({ name }) => name));
        cursor = page.next;
      }
      t.same(names, ['a', 'b', 'c'], `${path} by ${limit}`);
    }
    const beyond = await house.send('GET', `${ROOT}${path}cursor=3`);
    t.same(beyond.json(), { data: [], next: null });
    await checkRefusals(t, house, [
      [
        'GET',
        `${path}limit=0`,
        undefined,
        'invalid_parameters',
        /^limit must be a whole number from 1 to 1000, got 0$/,
      ],
      ['GET', `${path}limit=1001`, undefined, 'invalid_parameters', /^limit must be/],
      ['GET', `${path}limit=ten`, undefined, 'invalid_parameters', /^limit must be/],
      ['GET', `${path}limit=`, undefined, 'invalid_parameters', /^limit must be/],
      ['GET', `${path}cursor=-1`, undefined, 'invalid_parameters', /^cursor must be a whole number/],
      ['GET', `${path}cursor=99999999999999999`, undefined, 'invalid_parameters', /^cursor must be/],
      ['GET', `${path}page=2`, undefined, 'invalid_parameters', /^unknown query parameter page$/],
    ]);
  }
});

void t.test('accounts: search and filters', async (t) => {
  const house = await startAdminHouse(t);
  const { id } = await made(house, '/accounts', { name: 'Acme', plan: 'free' });
  await made(house, '/accounts', { name: 'acme & co', plan: 'paid' });
  await made(house, '/accounts', { name: 'bolt', plan: 'paid' });
  await made(house, '/accounts/bolt/disable', {});
  const found = async (query: string): Promise<string[]> => {
    const answer = await house.send('GET', `${ROOT}/accounts?${query}`);
    return (answer.json() as { data: { name: string }[] }).data.map(({ name }) => name);
  };
  t.same(await found('search=acme'), ['Acme', 'acme & co']);
  t.same(await found('search=e+%26+c'), ['acme & co']);
  t.same(await found(`search=${id.slice(0, 12)}`), ['Acme']);
  t.same(await found('plan=paid&active=true'), ['acme & co']);
  t.same(await found('active=false'), ['bolt']);
  t.same(await found('plan=gone'), []);
  t.same(await found('search=acme&cursor=1'), ['acme & co']);
  const page = await house.send('GET', `${ROOT}/accounts?search=acme&limit=1`);
  t.match(page.json(), { data: { length: 1 }, next: '1' });
  await checkRefusals(t, house, [
    [
      'GET',
      '/accounts?active=yes',
      undefined,
      'invalid_parameters',
      /^active must be true or false, got "yes"$/,
    ],
    ['GET', '/accounts?search=', undefined, 'invalid_parameters', /^search must not have fewer than 1/],
    [
      'GET',
      `/accounts?search=${'x'.repeat(101)}`,
      undefined,
      'invalid_parameters',
      /^search must not have more/,
    ],
    [
      'GET',
      '/accounts?plan=a&plan=b',
      undefined,
      'invalid_parameters',
      /^query parameter "plan" must be given once$/,
    ],
    [
      'GET',
      '/accounts?plan=%ff',
      undefined,
      'invalid_parameters',
      /^query parameter "plan" must be percent-encoded/,
    ],
    [
      'GET',
      '/accounts?%zz=1',
      undefined,
      'invalid_parameters',
      /^the name of a query parameter must be percent-encoded/,
    ],
  ]);
});

void t.test(
  'a credit that an older version answered is answered again with what is new in the view',
  async (t) => {
    const house = await startAdminHouse(t);
    const { id } = await made(house, '/accounts', { name: 'acme', plan: 'free', credit: '1.00' });
    const { index } = house.store.findAccountByName('acme')!;
    // As before there were groups and quotas.
    const response = JSON.stringify({ id, name: 'acme', plan: 'free', active: true, balance: '7.00' });
    house.store.commit(() =>
      house.store.putCreditRequest(index, 'k', {
        amount: asPicoUnits(1_000_000_000_000n),
        note: '',
        response,
      }),
    );
    const body = { amount: '1.00', idempotency_key: 'k' };
    const view = (await house.send('POST', `${ROOT}/accounts/acme/credit`, body)).json() as object;
    const now = (await house.send('GET', `${ROOT}/accounts/acme`)).json() as object;
    t.same(view, { ...now, balance: '7.00' });
  },
);

void t.test('accounts: credits once, and their journal', async (t) => {
  const house = await startAdminHouse(t);
  const { id } = await made(house, '/accounts', { name: 'acme', plan: 'free', credit: '1.00' });
  const credit = (body: object) => house.send('POST', `${ROOT}/accounts/acme/credit`, body);
  const asked = { amount: '2.00', note: 'invoice 7', idempotency_key: 'invoice-7' };
  const [one, two] = await Promise.all([credit(asked), credit(asked)]);
  t.equal(one.body, two.body, 'the first answer again');
  t.match(one.json(), { id, balance: '3.00' });
  await credit({ amount: '-0.50' });
  t.equal((await credit(asked)).body, one.body);
  t.match((await house.send('GET', `${ROOT}/accounts/acme`)).json(), { balance: '2.50' });
  const created = house.clock.nowMs / 1_000;
  const lines = [
    { amount: '1.00', note: 'opening balance', created },
    { amount: '2.00', note: 'invoice 7', created },
    { amount: '-0.50', note: '', created },
  ];
  const list = async (query: string) =>
    (await house.send('GET', `${ROOT}/accounts/${id}/credits${query}`)).json();
  t.same(await list(''), { data: lines, next: null });
  t.same(await list('?limit=2'), { data: lines.slice(0, 2), next: '2' });
  t.same(await list('?limit=2&cursor=2'), { data: lines.slice(2), next: null });
  await checkRefusals(t, house, [
    [
      'POST',
      '/accounts/acme/credit',
      { ...asked, amount: '3' },
      'invalid_parameters',
      /^idempotency_key "invoice-7" was/,
    ],
    [
      'POST',
      '/accounts/acme/credit',
      { ...asked, idempotency_key: '' },
      'invalid_parameters',
      /^idempotency_key must/,
    ],
    [
      'POST',
      '/accounts/acme/credit',
      { ...asked, idempotency_key: 7 },
      'invalid_parameters',
      /^idempotency_key must be str/,
    ],
    ['GET', '/accounts/nobody/credits', undefined, 'not_found', /nobody/],
    [
      'GET',
      '/accounts/acme/credits?from=2',
      undefined,
      'invalid_parameters',
      /^unknown query parameter from$/,
    ],
  ]);
});

void t.test('bulk', async (t) => {
  const house = await startAdminHouse(t);
  const answer = await house.send('POST', `${ROOT}/bulk`, {
    accounts: [
      { name: 'a', plan: 'free', credit: '1.50', keys: [{ name: 'x' }, { name: 'y' }] },
      { name: 'b', plan: 'paid' },
    ],
  });
  t.match(answer.json(), {
    data: [
      {
        account: { name: 'a', plan: 'free', balance: '1.50', active: true },
        keys: [
          { name: 'x', key: /^sk-/ },
          { name: 'y', key: /^sk-/ },
        ],
      },
      { account: { name: 'b', plan: 'paid', balance: '0.00' }, keys: [] },
    ],
  });
  const many = (count: number) =>
    Array.from({ length: count }, (_, at) => ({ name: `n${at}`, plan: 'free' }));
  const one = (item: object) => ({ accounts: [item] });
  const long = 'x'.repeat(8 * 1024 * 1024);
  await checkRefusals(t, house, [
    ['POST', '/bulk', {}, 'invalid_parameters', /^accounts must be given$/],
    ['POST', '/bulk', { accounts: {} }, 'invalid_parameters', /^accounts must be array, got \{\}$/],
    ['POST', '/bulk', { accounts: [] }, 'invalid_parameters', /^accounts must not have fewer than 1 items/],
    [
      'POST',
      '/bulk',
      { accounts: many(1_001) },
      'invalid_parameters',
      /^accounts must have at most 1000 items/,
    ],
    ['POST', '/bulk', one({ name: 'c' }), 'invalid_parameters', /^accounts\[0\]\.plan must be given$/],
    [
      'POST',
      '/bulk',
      one({ name: 'c', plan: 1 }),
      'invalid_parameters',
      /^accounts\[0\]\.plan must be string, got 1$/,
    ],
    [
      'POST',
      '/bulk',
      one({ name: 'c', plan: 'free', x: 1 }),
      'invalid_parameters',
      /^unknown field accounts\[0\]\.x$/,
    ],
    [
      'POST',
      '/bulk',
      one({ name: 'c', plan: 'free', credit: 'x' }),
      'invalid_parameters',
      /^accounts\[0\]\.credit must be a decimal/,
    ],
    [
      'POST',
      '/bulk',
      one({ name: 'c', plan: 'free', keys: ['x'] }),
      'invalid_parameters',
      /^accounts\[0\]\.keys\[0\] must be object/,
    ],
    [
      'POST',
      '/bulk',
      one({ name: 'c', plan: 'free', keys: [{}] }),
      'invalid_parameters',
      /^accounts\[0\]\.keys\[0\]\.name must be given$/,
    ],
    [
      'POST',
      '/bulk',
      one({ name: 'a', plan: 'free' }),
      'invalid_parameters',
      /^accounts\[0\]: name must be unique/,
    ],
    ['POST', '/bulk', one({ name: long, plan: 'free' }), 'request_too_large', /8388608 bytes/],
    ['GET', '/bulk', undefined, 'method_not_allowed', /^GET is not possible here, but POST\.$/],
  ]);
  t.match((await house.send('GET', `${ROOT}/accounts`)).json(), { data: { length: 2 } });
});

void t.test('models, plans, status', async (t) => {
  const house = await startAdminHouse(t);
  const answered = async (path: string): Promise<unknown> =>
    (await house.send('GET', `${ROOT}${path}`)).json();
  t.same(await answered('/models'), {
    data: [
      {
        id: 'small',
        aliases: [],
        owned_by: 'house',
        created: 1_700_000_000,
        serves: ['chat'],
        price: {
          input: '0.15',
          cached_input: '0.15',
          cache_write: '0.15',
          cache_write_1h: '0.15',
          output: '0.15',
          reasoning: '0.15',
          call: '0.00',
          cached_response: '0.00',
          long: [],
        },
        max_output_tokens: 100,
        fallbacks: [],
      },
    ],
    next: null,
  });
  t.match(await answered('/plans'), {
    data: [
      { id: 'free', requests_per_minute: 60, calls_per_day: 1_000, models: ['small'] },
      { id: 'paid' },
      { models: [] },
    ],
    next: null,
  });
  t.same(await answered('/status'), { calls_in_flight: 3 });
  for (const path of ['/models', '/plans', '/status']) {
    await checkRefusals(t, house, [
      ['GET', `${path}?x`, undefined, 'invalid_parameters', /^unknown query parameter x$/],
      ['POST', path, {}, 'method_not_allowed', /^POST is not possible here, but GET\.$/],
    ]);
  }
});

void t.test('what is nowhere, and what is no method', async (t) => {
  const house = await startAdminHouse(t);
  await made(house, '/accounts', { name: 'acme', plan: 'free' });
  for (const path of [
    '',
    '/',
    '/account',
    '/accounts/',
    '/accounts/acme/',
    '/accounts/acme/pay',
    '/keys//disable',
    '/accounts/%zz',
    '/accounts/%ff',
  ]) {
    const answer = await house.send('GET', `${ROOT}${path}`);
    t.equal(answer.status, path.startsWith('/keys') ? 405 : 404, path);
  }
  for (const path of ['/admin', '/admin/v2/accounts', '/v1/models', '/healthz/']) {
    checkError(t, await house.send('GET', path), 'not_found', path);
  }
  for (const [method, path, allow] of [
    ['DELETE', '/accounts', 'GET, POST'],
    ['PUT', '/accounts/acme', 'GET'],
    ['DELETE', '/accounts/acme', 'GET'],
    ['GET', '/accounts/acme/credit', 'POST'],
    ['PATCH', '/keys', 'GET, POST'],
    ['POST', '/keys/x', 'GET, DELETE'],
    ['OPTIONS', '/keys/x/disable', 'POST'],
  ] as const) {
    const answer = await house.send(method, `${ROOT}${path}`);
    checkError(t, answer, 'method_not_allowed', `${method} ${path}`);
    t.equal(answer.headers.allow, allow);
  }
});

void t.test('no error repeats a long text', async (t) => {
  const house = await startAdminHouse(t);
  const inAddress = 'x'.repeat(4_000);
  const inBody = 'x'.repeat(50_000);
  const fieldsOf = (schema: { readonly properties: object }): string[] => Object.keys(schema.properties);
  for (const { method, path, query, body } of ADMIN_ROUTES) {
    const at = (id: string): string => `${ROOT}${path.replace(/\{\w+\}/, id)}`;
    const requests: (readonly [target: string, body?: object])[] = [
      [at(inAddress)],
      ...fieldsOf(query).map((name) => [`${at('a')}?${name}=${inAddress}`] as const),
      ...fieldsOf(body).map((name) => [at('a'), { [name]: inBody }] as const),
    ];
    for (const [target, fields] of requests) {
      const { status, body: text } = await house.send(method, target, fields);
      const request = `${method} ${target.slice(0, 80)} ${Object.keys(fields ?? {}).join()}`;
      if (status !== 200) t.ok(text.length < 1_000, `${request}: ${text.length} characters`);
    }
  }
  const account = { name: 'a', plan: inBody };
  for (const [path, fields] of [
    ['/accounts', account],
    ['/bulk', { accounts: [account] }],
  ] as const) {
    const answer = await house.send('POST', `${ROOT}${path}`, fields);
    t.ok(answer.status === 400 && answer.body.length < 1_000, path);
  }
});

void t.test('no two routes match the same request, and no path has two variable segments', (t) => {
  const isVariable = (segment: string | undefined): boolean => segment?.startsWith('{') === true;
  for (const [index, { method, path, segments }] of ADMIN_ROUTES.entries()) {
    t.ok(segments.filter(isVariable).length <= 1, path);
    const twin = ADMIN_ROUTES.slice(index + 1).find(
      (other) =>
        other.method === method &&
        other.segments.length === segments.length &&
        segments.every(
          (segment, at) =>
            segment === other.segments[at] || isVariable(segment) || isVariable(other.segments[at]),
        ),
    );
    t.equal(twin?.path, undefined, `${method} ${path}`);
  }
  const wrong = { method: 'GET', path: '/a/{b}/{c}', summary: '', respond: () => ({}) } as const;
  t.throws(() => defineRoute({ ...wrong, responseSchema: Type.Object({}) }), /at most one variable segment/);
  t.end();
});
