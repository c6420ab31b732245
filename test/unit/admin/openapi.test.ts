/** The document of the admin interface: valid, whole, and true of what every route answers. */
import { Validator } from '@seriousme/openapi-schema-validator';
import t from 'tap';
import { Check } from 'typebox/schema';
import { ADMIN_ROUTES } from '#src/admin/routes.js';
import { checkIdempotencyKey } from '#src/request/idempotency.js';
import { DOORS } from '#src/doors/doors.js';
import { PUBLIC_DOCUMENT } from '#src/protocol/generated.js';
import { RING_NAMES } from '#src/telemetry/history.js';
import { randomCall } from '../../support/stored-calls.js';
import type { OperatorChange } from '#src/registry/operator-change.js';
import { type AdminHouse, keepCalls, keepContents, startAdminHouse } from './support.js';
import { REFERENCE_RULE } from '#src/registry/record-id.js';
import { randomOf } from '../../support/random.js';

interface Operation {
  readonly operationId: string;
  readonly parameters: readonly { readonly name: string; readonly in: string }[];
  readonly responses: Readonly<Record<string, { readonly content: Record<string, { schema: object }> }>>;
}

interface Document {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: { readonly Error: object } };
}

const ROOT = '/admin/v1';
const RULE_OF_REFERENCES = JSON.stringify(REFERENCE_RULE);

void t.test('both documents are valid OpenAPI 3.1', async (t) => {
  const house = await startAdminHouse(t);
  const answer = await house.send('GET', `${ROOT}/openapi.json`);
  t.equal(answer.headers['content-type'], 'application/json');
  for (const [name, text] of [
    ['admin', answer.body],
    ['public', PUBLIC_DOCUMENT],
  ] as const) {
    const document = JSON.parse(text) as Record<string, unknown> & Document;
    const result = await new Validator().validate(document);
    t.same(result.errors, undefined, name);
    t.equal(result.valid, true, name);
    t.equal(document.openapi, '3.1.0');
    t.match(text, /^[\x20-\x7e]*$/, 'ASCII');
    const ids = Object.values(document.paths).flatMap((path) =>
      Object.values(path).map(({ operationId }) => operationId),
    );
    t.equal(new Set(ids).size, ids.length, 'operation ids differ');
  }
  const { paths } = JSON.parse(PUBLIC_DOCUMENT) as Document;
  for (const { path } of DOORS) t.ok(paths[path]?.post, `${path} is in the public document`);
  // The validator must be able to say no.
  const broken = JSON.parse(answer.body) as Record<string, unknown> & { info: { title?: string } };
  delete broken.info.title;
  t.equal((await new Validator().validate(broken)).valid, false);
});

void t.test('what a field refers to may not be found', async (t) => {
  const house = await startAdminHouse(t);
  const { paths } = (await house.send('GET', `${ROOT}/openapi.json`)).json() as Document;
  for (const { method, path, query, body } of ADMIN_ROUTES) {
    const schemas = Object.entries({ ...query.properties, ...body.properties });
    const references = schemas.filter(([, schema]) => JSON.stringify(schema).includes(RULE_OF_REFERENCES));
    if (references.length === 0) continue;
    const { responses } = paths[ROOT + path]![method.toLowerCase()]!;
    t.ok(responses[404], `${method} ${path}: ${references.map(([name]) => name).join()}`);
  }
});

/** One good request for each route, in an order that makes what the next need: method, path, body. */
const REQUESTS: readonly (readonly [string, string, object?])[] = [
  ['POST', '/accounts', { name: 'acme', plan: 'free', credit: '5.00' }],
  ['GET', '/accounts?search=acm&active=true'],
  ['GET', '/accounts/acme'],
  ['GET', '/history/accounts?range=1h'],
  ['GET', '/accounts/acme/history?range=1h'],
  ['POST', '/accounts/acme/credit', { amount: '1.00', note: 'n', idempotency_key: 'k' }],
  ['GET', '/accounts/acme/credits'],
  ['POST', '/accounts/acme/set-plan', { plan: 'paid' }],
  ['POST', '/groups', { name: 'research', spend_per_month: '250.00', tokens_per_minute: 5_000 }],
  ['POST', '/groups', { name: 'vision', parent: 'research' }],
  ['POST', '/groups/vision/set-limits', { calls_per_day: 5, spend_per_day: null }],
  ['POST', '/accounts/acme/set-group', { group: 'research' }],
  ['GET', '/accounts?group=research'],
  ['GET', '/groups?parent=research'],
  ['GET', '/groups/research'],
  ['GET', '/group-tree?root=research'],
  ['DELETE', '/groups/vision'],
  ['POST', '/accounts/acme/disable'],
  ['POST', '/accounts/acme/enable', {}],
  ['POST', '/bulk', { accounts: [{ name: 'b', plan: 'free', keys: [{ name: 'k' }] }] }],
  ['POST', '/keys', { account: 'acme', name: 'laptop' }],
  ['POST', '/keys/laptop/set-private', { private: true }],
  ['POST', '/keys/laptop/set-limits', { tokens_per_day: 1_000, spend_per_month: '5' }],
  ['GET', '/keys?account=acme'],
  ['GET', '/keys/laptop'],
  ['POST', '/keys/laptop/disable'],
  ['POST', '/keys/laptop/enable'],
  ['POST', '/keys/laptop/rotate', { grace: 0 }],
  ['DELETE', '/keys/laptop'],
  ['POST', '/operators', { name: 'ann', role: 'support', expires_in: 90 }],
  ['GET', '/operators'],
  ['GET', '/operators/ann'],
  ['POST', '/operators/ann/set-role', { role: 'viewer' }],
  ['POST', '/operators/ann/disable'],
  ['POST', '/operators/ann/enable'],
  ['POST', '/operators/ann/rotate', {}],
  ['DELETE', '/operators/ann'],
  ['GET', '/changes?who=bootstrap&action=keys&limit=2'],
  ['GET', '/changes/verify'],
  ['GET', '/usage?by=account'],
  ['GET', '/usage?format=csv'],
  ['GET', '/usage/rows?from=2020-01-01&limit=10'],
  ['GET', '/calls?limit=20&status=5xx'],
  ['GET', '/calls'],
  ['GET', '/calls?after=0'],
  ['GET', '/calls/req_abcdefgh-_12-0'],
  ['GET', '/calls/req_abcdefgh-_12-0/contents'],
  ['GET', '/models'],
  ['GET', '/plans'],
  ['GET', '/status'],
  ['GET', '/settings'],
  ['POST', '/reload'],
  ['POST', '/flush'],
  ['GET', '/log'],
  ['PUT', '/log', { level: 'warn' }],
  ['POST', '/upstreams/reset', {}],
  ['POST', '/cache/clear', {}],
  ['GET', '/hosts'],
  ['DELETE', '/hosts/host_2'],
  ['GET', '/openapi.json'],
];

void t.test('the stream is in the document, as far as it can tell of one', async (t) => {
  const house = await startAdminHouse(t);
  const document = (await house.send('GET', `${ROOT}/openapi.json`)).json() as Document;
  const operation = document.paths[`${ROOT}/live`]!.get!;
  t.match(operation.parameters, [{ name: 'range', in: 'query', schema: { enum: [...RING_NAMES] } }]);
  t.ok(operation.responses['200']?.content['text/event-stream']);
  for (const [query, headers] of [
    ['?range=2h', undefined],
    ['', {}],
  ] as const) {
    const refused = await house.send('GET', `${ROOT}/live${query}`, undefined, headers && { headers });
    t.ok(operation.responses[refused.status], `${refused.status} is declared`);
    t.ok(Check(document.components.schemas.Error, refused.json()));
  }
});

/** The newest row of the changes, as the interface shows it. */
async function newestChange(house: AdminHouse): Promise<OperatorChange | undefined> {
  const { data } = (await house.send('GET', `${ROOT}/changes?limit=1`)).json() as { data: OperatorChange[] };
  return data[0];
}

/** A write of what has been counted, which an operator may ask for, changes nothing. */
const NO_CHANGE = ['POST /flush'];

void t.test('every route is in the document, answers as it says, and records what it changes', async (t) => {
  const house = await startAdminHouse(t);
  house.hosts = {
    list: () =>
      Promise.resolve([
        { id: 'host_1', isSelf: true, state: 'heard', heardMs: 1_700_000_000_999 },
        { id: 'host_2', isSelf: false, state: 'awaited', heardMs: undefined },
      ]),
    forget: () => Promise.resolve(),
  };
  const random = randomOf(1);
  const calls = Array.from({ length: 20 }, (_, number) =>
    randomCall(random, number, 1_700_000_000_000, { accounts: 2, models: 2, upstreams: 2 }),
  );
  keepCalls(t, house, calls);
  keepContents(t, house, ['req_abcdefgh-_12-0']);
  const document = (await house.send('GET', `${ROOT}/openapi.json`)).json() as Document;
  const groupResponses = document.paths[`${ROOT}/groups/{group}`]!;
  t.notOk(groupResponses.get!.responses['409'], 'a read of a group conflicts with nothing');
  t.ok(groupResponses.delete!.responses['409'], 'its deletion may');
  const asked = new Set<string>();
  for (const [method, path, body] of REQUESTS) {
    const [plain = '', query = ''] = path.split('?');
    const segments = plain.slice(1).split('/');
    const route = ADMIN_ROUTES.find(
      (candidate) =>
        candidate.method === method &&
        candidate.segments.length === segments.length &&
        candidate.segments.every((word, at) => word.startsWith('{') || word === segments[at]),
    );
    if (route === undefined) throw new Error(`no route ${method} ${plain}`);
    asked.add(`${method} ${route.path}`);
    const operation = document.paths[`${ROOT}${route.path}`]?.[method.toLowerCase()];
    if (operation === undefined) throw new Error(`${method} ${route.path} is not in the document`);
    for (const name of new URLSearchParams(query).keys()) {
      t.ok(
        operation.parameters.some((parameter) => parameter.in === 'query' && parameter.name === name),
        `${path}: ${name} is declared`,
      );
    }
    const before = (await newestChange(house))?.number ?? 0;
    const answer = await house.send(method, `${ROOT}${path}`, body);
    t.equal(answer.status, 200, `${method} ${path}: ${answer.body.slice(0, 200)}`);
    const change = await newestChange(house);
    if (method === 'GET' || NO_CHANGE.includes(`${method} ${path}`)) {
      t.equal(change?.number ?? 0, before, `${method} ${path} records nothing`);
    } else {
      t.equal(change?.number, before + 1, `${method} ${path} records one change`);
      t.match(change, { who: 'bootstrap', role: 'admin', from: /127\.0\.0\.1$/, action: route.action });
    }
    const type = answer.headers['content-type']!.split(';')[0]!;
    const schema = operation.responses['200']?.content[type]?.schema;
    if (schema === undefined) throw new Error(`${method} ${path} answers ${type}, which it does not declare`);
    const value: unknown = type === 'application/json' ? answer.json() : answer.body;
    t.ok(Check(schema, value), `${method} ${path} matches its schema`);
    // The document allows a later field, the route's own schema does not: it finds a field that it lacks.
    t.notMatch(JSON.stringify(schema), '"additionalProperties":false', `${method} ${path} may get a field`);
    if (type === 'application/json')
      t.ok(Check(route.responseSchema, value), `${method} ${path} has no field that the schema lacks`);
    t.equal(Check(schema, 5), false, 'which does not match everything');
  }
  t.same(
    [...asked].sort(),
    ADMIN_ROUTES.map(({ method, path }) => `${method} ${path}`).sort(),
    'no route was left out',
  );
  for (const path of ['/accounts/nobody', '/nowhere', '/accounts?x=1']) {
    const answer = await house.send('GET', `${ROOT}${path}`);
    t.ok(Check(document.components.schemas.Error, answer.json()), path);
  }
});

const EDGES = [
  '',
  'a',
  ' ',
  'a b',
  ' a',
  'a ',
  'a\u00a0',
  '\ufeffa',
  '.',
  '..',
  '...',
  '.a',
  'ä',
  '漢字',
  '😀',
  'a\n',
  'a\r',
  '\t',
  '\0',
  '\x7f',
  '\x80',
  '\u2028',
  '\u202e',
  '\u061c',
  '\u200e',
  '\u2066',
  '\u2069',
  '\u200d',
  '\ud800',
  'a\udc00',
];
const LENGTHS = [99, 100, 101, 199, 200, 201, 255, 256, 499, 500, 501];
const ID_TAIL = '0123456789abcdef';
const KEY_TAIL = 'A'.repeat(43);
const TEXTS = [
  ...EDGES,
  ...LENGTHS.flatMap((length) => ['x'.repeat(length), '😀'.repeat(length), `${'x'.repeat(length - 1)}\n`]),
  ...['acct_', 'grp_', 'key_'].flatMap((prefix) => [
    prefix,
    prefix + ID_TAIL,
    `${prefix}${ID_TAIL}0`,
    `x${prefix}${ID_TAIL}`,
    prefix + ID_TAIL.toUpperCase(),
    `${prefix}${ID_TAIL}\n`,
  ]),
  ...[
    'sk-',
    `sk-${KEY_TAIL}`,
    `sk-${KEY_TAIL}A`,
    `xsk-${KEY_TAIL}`,
    `sk-${KEY_TAIL.slice(1)}`,
    `sk-${KEY_TAIL}\n`,
  ],
  ...[
    '0',
    '00',
    '1',
    '-1',
    '-0.5',
    '+1',
    '1.',
    '.5',
    '1.000000000001',
    '1.0000000000001',
    '3000000',
    '1e3',
    ' 1',
    '01',
    '12345678',
    '1,5',
    '0.00',
    '0.000000000999',
    '0.000000001',
    '0.5',
    '250.00',
  ],
];

/**
 * Where each text stands, a request that fails anyway and without change, and how its refusal begins if the
 * text is at fault.
 */
const RULED: readonly (readonly [string, string, (text: string) => object, RegExp])[] = [
  ['/accounts', 'name', (name) => ({ name, plan: 'none' }), /^name must/],
  [
    '/bulk',
    'accounts[].name',
    (name) => ({ accounts: [{ name, plan: 'none' }] }),
    /^accounts\[0\]: name must/,
  ],
  ['/groups', 'name', (name) => ({ name, parent: 'none' }), /^name must/],
  ['/groups', 'parent', (parent) => ({ name: 'x', parent }), /^parent must|^an id or a name is wanted/],
  ['/groups', 'spend_per_day', (amount) => ({ name: '', spend_per_day: amount }), /^spend_per_day must/],
  ['/keys', 'name', (name) => ({ account: 'acme', name, expires: 1 }), /^name must/],
  ['/keys', 'account', (account) => ({ account, name: '' }), /^account must|^an id or a name is wanted/],
  ['/accounts/{account}/credit', 'note', (note) => ({ amount: '-1', note }), /^note must/],
  [
    '/accounts/{account}/credit',
    'idempotency_key',
    (key) => ({ amount: '-1', idempotency_key: key }),
    /^idempotency_key must/,
  ],
  ['/accounts/{account}/credit', 'amount', (amount) => ({ amount, note: '\n' }), /^amount must be a decimal/],
];

interface Nested {
  readonly properties?: Readonly<Record<string, Nested>>;
  readonly items?: Nested;
}

void t.test('texts with a rule: the document says what the interface does', async (t) => {
  const house = await startAdminHouse(t);
  await house.send('POST', `${ROOT}/accounts`, { name: 'acme', plan: 'free' });
  const { paths } = (await house.send('GET', `${ROOT}/openapi.json`)).json() as {
    paths: Record<string, { post: { requestBody: { content: { 'application/json': { schema: Nested } } } } }>;
  };
  for (const [path, field, request, fault] of RULED) {
    const { post: operation } = paths[`${ROOT}${path}`]!;
    let schema: Nested = operation.requestBody.content['application/json'].schema;
    for (const name of field.split('.')) {
      schema = schema.properties![name.replace('[]', '')]!;
      if (name.endsWith('[]')) schema = schema.items!;
    }
    let refused = 0;
    for (const text of TEXTS) {
      const answer = await house.send('POST', `${ROOT}${path.replace('{account}', 'acme')}`, request(text));
      const { error } = answer.json() as { error: { code: string; message: string } };
      const isRejected = fault.test(error.message);
      if (isRejected) refused++;
      const name = `${path} ${field} ${JSON.stringify(text).slice(0, 60)} (${text.length}): ${error.message.slice(0, 120)}`;
      // What a pattern cannot count: UTF-16 units of a reference. Nor does one compare amounts.
      const isLaxer =
        (['account', 'parent'].includes(field) && text.length > 200) ||
        (['amount', 'spend_per_day'].includes(field) && Number(text) > 3_000_000);
      if (Check(schema, text) === isRejected && !isLaxer) t.fail(name);
      if (isLaxer) t.ok(isRejected, name);
    }
    t.ok(
      refused > 3 && refused < TEXTS.length - 3,
      `${path} ${field}: ${refused} of ${TEXTS.length} are refused`,
    );
  }
});

void t.test('the header Idempotency-Key: the document says what the interface does', (t) => {
  const { paths } = JSON.parse(PUBLIC_DOCUMENT) as {
    paths: Record<string, { post: { parameters: { name: string; schema: object }[] } }>;
  };
  const { schema } = paths['/v1/chat/completions']!.post.parameters.find(
    ({ name }) => name === 'Idempotency-Key',
  )!;
  // Names of tests that have such characters confuse the runner.
  const differing = TEXTS.filter((text) => Check(schema, text) !== (checkIdempotencyKey(text) === undefined));
  t.same(differing, []);
  const taken = TEXTS.filter((text) => Check(schema, text)).length;
  t.ok(taken > 20 && taken < TEXTS.length - 20, `${taken} of ${TEXTS.length}`);
  t.end();
});
