/**
 * Requests that are wrong in some way, at every door and at the admin port: members of wrong types, huge,
 * nested and odd texts, cursors and filters that nothing has given, methods, headers and sign-ins. Each is
 * answered soon, none with a 5xx, and the books have what was served and nothing else.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { ADMIN_ROUTES } from '#src/admin/routes.js';
import {
  callOf,
  DOOR_CASES,
  DOOR_ENV,
  hasStreams,
  isFree,
  modelsOf,
  pathOf,
  startDoorMocks,
  WAYS,
  wayName,
  type Way,
} from '../support/doors.js';
import { eventually, startGateway, type Gateway } from '../support/gateway.js';
import { request } from '../support/http.js';
import { MachineLag } from '../support/machine-lag.js';

/** More is a hang: on two cores with twenty programs 2.6 s were seen. The machine's own lag comes on top. */
const ANSWER_MS_MAX = 5_000;
const AT_ONCE = 8;
/** All that a call costs, so that what was spent counts the calls. */
const CALL_PRICE = 0.5;

interface Case {
  readonly what: string;
  readonly port: number;
  readonly method?: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** The loopback address that it comes from, as sign-ins are limited by address. Default 127.0.0.1. */
  readonly localAddress?: string;
  /** What it costs if it is served. */
  readonly isBilled?: boolean;
}

const DEEP = `${'['.repeat(40)}1${']'.repeat(40)}`;
const VERY_DEEP = `${'{"a":'.repeat(500)}1${'}'.repeat(500)}`;
/** As JSON. */
const VALUES: readonly (readonly [string, string])[] = [
  ['null', 'null'],
  ['a number', '7'],
  ['a huge number', '1e308'],
  ['a negative fraction', '-0.5'],
  ['a flag', 'true'],
  ['an empty text', '""'],
  ['a text with NUL', '"a\\u0000b"'],
  ['a text turned round', '"a\u202eb\u2066\\u0085"'],
  ['half a pair', '"\\udc00"'],
  ['emoji', '"👩‍👩‍👧‍👦🏳️‍🌈"'],
  ['a long text', `"${'é'.repeat(30_000)}"`],
  ['an empty array', '[]'],
  ['an empty object', '{}'],
  ['an array of nulls', '[null,null]'],
  ['__proto__', '{"__proto__":{"x":1},"constructor":null}'],
  ['deep arrays', DEEP],
  ['very deep objects', VERY_DEEP],
  ['many values', `[${'0,'.repeat(20_000)}0]`],
];
/** Members of single doors, and values that they do not take, or hand on. */
const OWN_MEMBERS: Partial<Record<Way['door'], Readonly<Record<string, readonly string[]>>>> = {
  count_tokens: {
    system: ['[{"type":"text"}]', '[{"type":"image"}]', '7', '[[]]'],
    tools: ['[{}]', '[{"name":1,"input_schema":7}]', 'null', `[{"name":"a","input_schema":${VERY_DEEP}}]`],
    tool_choice: ['"auto"', '{"type":"any","name":[]}'],
    messages: [
      '[{"role":"system","content":"x"}]',
      '[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":7}}]}]',
      '[{"role":"user","content":[{"type":"tool_result","tool_use_id":null}]}]',
      '[{"role":"user","content":[{"type":"document","source":{}}]}]',
      '[{"role":"assistant","content":[{"type":"thinking","thinking":{}}]}]',
      `[${'{"role":"user","content":"x"},'.repeat(5_000)}{"role":"user","content":""}]`,
    ],
  },
  embeddings: {
    input: ['[[]]', '[-1]', '[1.5]', '[[1,"a"]]', '["a",1]', '[[[1]]]', '[18446744073709551616]', '["",""]'],
    dimensions: ['0', '-1', '1e400', '"5"'],
    encoding_format: ['"hex"', '5', '["float"]'],
  },
  responses: {
    input: [
      '[{"type":"message"}]',
      '[{"type":"message","role":"user","content":[{"type":"input_image","image_url":7}]}]',
      '[{"type":"function_call_output","call_id":5,"output":{}}]',
      '[{"type":"item_reference","id":"\\u0000"}]',
      '[{"type":"reasoning","summary":7}]',
      '[{"type":"no_such_item"}]',
      '["x"]',
    ],
    previous_response_id: ['"resp_x"', '7', '"../../etc/passwd"', `"${'r'.repeat(5_000)}"`],
    background: ['true', '"true"'],
    store: ['"yes"', '1'],
    tools: ['[{"type":"web_search"}]', '[{"type":"function","name":{}}]', '7'],
    text: ['{"format":{"type":"json_schema"}}', '[]'],
    conversation: ['"conv_1"', '{"id":7}'],
    truncation: ['"auto"', '0'],
  },
};

const bodyWith = (way: Way, name: string, value: string): string => {
  const members = Object.entries(callOf(way, 'Hello', { outputTokensMax: 9 })).filter(
    ([own]) => own !== name,
  );
  return `{${[...members.map(([own, of]) => `${JSON.stringify(own)}:${JSON.stringify(of)}`), `"${name}":${value}`].join()}}`;
};

function doorCases(port: number, way: Way): Case[] {
  const base = { port, path: pathOf(way), isBilled: !isFree(way) };
  const { bound } = DOOR_CASES[way.door];
  const names = new Set([
    ...Object.keys(callOf(way, 'Hello')),
    ...(bound === undefined ? [] : [bound]),
    ...(hasStreams(way) ? ['stream'] : []),
    'metadata',
  ]);
  const good = JSON.stringify(callOf(way, 'Hello'));
  const own = Object.entries(OWN_MEMBERS[way.door] ?? {});
  return [
    ...[...names].flatMap((name) =>
      VALUES.map(([what, value]) => ({
        ...base,
        what: `${name} is ${what}`,
        body: bodyWith(way, name, value),
      })),
    ),
    ...own.flatMap(([name, values]) =>
      values.map((value) => ({
        ...base,
        what: `${name} is ${value.slice(0, 60)}`,
        body: bodyWith(way, name, value),
      })),
    ),
    ...['', '{', 'null', '[]', `${good}x`, `\ufeff${good}`, `${good}\0`, good.slice(0, -1)].map((body) => ({
      ...base,
      what: `the body ${JSON.stringify(body.slice(0, 20))}`,
      body,
    })),
    ...['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND'].map((method) => ({
      ...base,
      what: `the method ${method}`,
      method,
    })),
    ...headerCases().map(([what, headers]) => ({ ...base, what, headers, body: good })),
    ...['?', '?a=%zz', '/', '//', '/..%2f', '%00', `?${'q'.repeat(3_000)}`].map((more) => ({
      ...base,
      what: `the path with ${more.slice(0, 20)}`,
      path: pathOf(way) + more,
      body: good,
    })),
  ];
}

function headerCases(): (readonly [string, Record<string, string>])[] {
  const one = (name: string, values: readonly string[]): (readonly [string, Record<string, string>])[] =>
    values.map((value) => [`${name}: ${value.slice(0, 40)}`, { [name]: value }]);
  return [
    ...one('authorization', [
      '',
      'Bearer',
      'Bearer ',
      'Basic Og==',
      'Bearer a b',
      `Bearer ${'k'.repeat(6_000)}`,
    ]),
    ...one('idempotency-key', ['', ' ', 'é'.repeat(3), 'k'.repeat(3_000), 'a\tb']),
    ...one('content-type', ['text/html', 'application/json; charset=utf-16', ';;;', 'x'.repeat(2_000)]),
    ...one('content-encoding', ['gzip', 'br, gzip', 'identity', 'x', '']),
    ...one('cache-control', [
      'no-store',
      'no-cache, no-store',
      'NO-CACHE',
      'max-age=-1',
      'max-age=99999999999999999999',
      'no-store="',
      ',,,,',
      'no-cache=é',
      'no-store,'.repeat(500),
    ]),
    ...one('traceparent', ['00-0-0-0', `00-${'0'.repeat(32)}-${'0'.repeat(16)}-01`, 'z'.repeat(2_000)]),
    ...one('anthropic-beta', ['x'.repeat(3_000), ',,,', 'é']),
    ...one('origin', ['null', 'http://a:b', 'x'.repeat(2_000)]),
    ...one('accept', ['text/event-stream', 'image/png', '\u00ff']),
  ];
}

const NAMES = ['x', '%00', '%ff', '%e2%80%ae', '..%2f..', '%F0%9F%98%80', 'n'.repeat(2_000), '', '0', '-1'];
/** The path with each parameter of each route that reads. */
const PARAMETERS = ADMIN_ROUTES.filter(({ method }) => method === 'GET').flatMap(({ path, query }) =>
  Object.keys(query.properties).map((name) => `${path.replace(/\{\w+\}/, 'x')}?${name}=`),
);
const QUERY_VALUES = [
  ...NAMES,
  '99999999_99999999',
  '1e9',
  '0_0&cursor=0_0',
  '9999-99-99T99:99Z',
  '-271821-04-20',
  '275760-09-13T00:00Z',
  '9007199254740993',
  'eyJhIjoxfQ',
  '%27%20or%201=1',
];

function adminCases(port: number, token: string): Case[] {
  const base = { port, headers: { authorization: `Bearer ${token}` } };
  const root = '/admin/v1';
  const groups: readonly (readonly [string, string])[] = [
    ...VALUES.map(([what, value]) => [`a group whose name is ${what}`, `{"name":${value}}`] as const),
    ...VALUES.map(
      ([what, value]) => [`a group whose parent is ${what}`, `{"name":"child","parent":${value}}`] as const,
    ),
    ...['calls_per_day', 'tokens_per_month', 'spend_per_day'].flatMap((quota) =>
      VALUES.map(
        ([what, value]) =>
          [
            `a group whose ${quota} is ${what}`,
            `{"name":"limited","parent":"no","${quota}":${value}}`,
          ] as const,
      ),
    ),
  ];
  return [
    ...PARAMETERS.flatMap((parameter) =>
      QUERY_VALUES.map((value) => ({
        ...base,
        what: `${parameter}${value.slice(0, 40)}`,
        path: `${root}${parameter}${value}`,
      })),
    ),
    ...['calls', 'groups', 'keys', 'accounts', 'operators', 'history'].flatMap((route) =>
      NAMES.flatMap((name) =>
        ['GET', 'DELETE', 'PATCH'].map((method) => ({
          ...base,
          what: `${method} ${route}/${name.slice(0, 40)}`,
          method,
          path: `${root}/${route}/${name}`,
        })),
      ),
    ),
    ...groups.map(([what, body]) => ({ ...base, what, path: `${root}/groups`, body })),
  ];
}

const CALLBACK = '/admin/session/oidc/callback';

function signInCases(port: number): Case[] {
  const COOKIES = [
    undefined,
    'tollgate-oidc=',
    'tollgate-oidc=1.a',
    `a=${'c'.repeat(4_000)}`,
    '=;=;;',
    'é=é',
  ];
  const ASKED = [
    '',
    '?code=a',
    '?code=a&state=b',
    '?code=a&state=b&state=b',
    '?error=access_denied&error_description=%3Cscript%3E',
    '?state=%00&code=%ff',
    `?state=${'s'.repeat(5_000)}&code=x`,
    '?state[]=a&code[]=b',
    '?iss=http://127.0.0.1:1&code=%0d%0aset-cookie:x&state=a',
  ];
  const cases: Case[] = [
    ...ASKED.flatMap((query) =>
      COOKIES.map((cookie, index) => ({
        port,
        what: `sign-in${query.slice(0, 40)}, cookie ${index}`,
        path: CALLBACK + query,
        ...(cookie !== undefined && { headers: { cookie } }),
      })),
    ),
    ...['POST', 'HEAD', 'DELETE', 'OPTIONS'].map((method) => ({
      port,
      what: `${method} of the sign-in`,
      method,
      path: CALLBACK,
    })),
  ];
  return cases.map((one, index) => ({ ...one, localAddress: `127.0.0.${index + 2}` }));
}

interface Told {
  readonly status: number;
  readonly ms: number;
  readonly body: string;
  /** The response cache had it, so it cost nothing. */
  readonly isHit: boolean;
}

async function told(one: Case, key: string): Promise<Told> {
  const beganMs = performance.now();
  const headers = { authorization: `Bearer ${key}`, ...one.headers };
  const answer = await request({
    ...one,
    headers,
    timeoutMs: 20_000,
  }).catch((error: unknown) => ({ status: 0, headers: {}, body: String(error) }));
  const isHit = 'x-tollgate-cache' in answer.headers && answer.headers['x-tollgate-cache'] === 'hit';
  return { status: answer.status, ms: performance.now() - beganMs, body: answer.body, isHit };
}

/**
 * Sends all, some at a time, and judges each. Returns how many that cost something were served, and how many
 * got each status.
 */
async function attack(
  t: Test,
  gateway: Gateway,
  cases: readonly Case[],
  key: string,
): Promise<{ billed: number; statuses: Readonly<Record<string, number>> }> {
  const lag = new MachineLag(gateway.folder);
  const slow: (readonly [number, string])[] = [];
  const statuses: Record<string, number> = {};
  let billed = 0;
  let next = 0;
  const send = async (): Promise<void> => {
    for (let one = cases[next++]; one !== undefined; one = cases[next++]) {
      const { status, ms, body, isHit } = await told(one, key);
      statuses[status] = (statuses[status] ?? 0) + 1;
      if (status === 200 && one.isBilled === true && !isHit) billed++;
      slow.push([ms, one.what]);
      if (status < 200 || status >= 500)
        t.fail(`${one.path.slice(0, 60)}, ${one.what}: ${status} ${body.slice(0, 300)}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, send));
  const boundMs = ANSWER_MS_MAX + 5 * (await lag.end());
  const [slowest] = slow.sort(([left], [right]) => right - left);
  t.ok(slowest![0] < boundMs, `the slowest took ${slowest![0].toFixed(0)} ms: ${slowest![1]}`);
  t.comment(`${cases.length} requests: ${JSON.stringify(statuses)}`);
  return { billed, statuses };
}

/** Heads that no client sends. Each is answered with a 4xx, or its connection is cut. */
const HEADS: readonly string[] = [
  'post /v1/responses HTTP/1.1\r\nhost: a\r\n\r\n',
  'POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n',
  'POST /v1/embeddings HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999\r\n\r\n',
  'POST /v1/responses HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n',
  'POST\t/v1/responses\tHTTP/1.1\r\nhost: a\r\n\r\n',
  'POST /v1/messages/count_tokens HTTP/9.9\r\nhost: a\r\n\r\n',
  'POST /v1/messages/count_tokens HTTP/1.1\r\nhost: a\r\nx: \0\r\n\r\n',
  `POST /v1/responses HTTP/1.1\r\nhost: a\r\nx: ${'h'.repeat(70_000)}\r\n\r\n`,
  `POST /v1/responses HTTP/1.1\r\nhost: a\r\n${'x: 1\r\n'.repeat(300)}\r\n`,
  `GET /${'p'.repeat(70_000)} HTTP/1.1\r\nhost: a\r\n\r\n`,
  '\0\0\0\0\r\n\r\n',
  'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
];

/** The status, or '' if the connection was cut. */
async function headTold(port: number, head: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  let text = '';
  socket.on('data', (bytes) => {
    text += bytes.toString('latin1');
    if (text.includes('\r\n\r\n')) socket.destroy();
  });
  socket.end(head);
  await once(socket, 'close');
  return /^HTTP\/1\.\d (\d+)/.exec(text)?.[1] ?? '';
}

void t.test('wrong requests', { timeout: 120_000 }, async (t) => {
  const { originOf } = await startDoorMocks(t);
  const gateway = await startGateway(t, {
    env: { ...DOOR_ENV, OIDC_SECRET: 'client-secret-0123456789' },
    config: {
      models: modelsOf(originOf, {
        price: { input: '0', output: '0', call: String(CALL_PRICE), cached_response: '0' },
      }),
      plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
      cache: { ttl_seconds: 600 },
      limits: { body_bytes: 300_000 },
      admin: {
        oidc: {
          issuer: 'http://127.0.0.1:1',
          client_id: 'tollgate',
          client_secret: '${OIDC_SECRET}',
          redirect_url: `http://127.0.0.1:8081${CALLBACK}`,
          role_claim: 'groups',
          roles: { admins: 'admin' },
          timeout_seconds: 1,
        },
      },
    },
  });
  const pid = gateway.pid();

  await t.test('at the doors', async (t) => {
    for (const way of WAYS) {
      const { key, accountId } = await gateway.admin.customer({ credit: '1000.00' });
      await t.test(wayName(way), async (t) => {
        const { billed } = await attack(t, gateway, doorCases(gateway.port, way), key);
        const account = await eventually('the calls to end', async () => {
          const found = await gateway.admin.account(accountId);
          return found.calls_in_flight === 0 ? found : undefined;
        });
        t.equal(Number(account.spent) / CALL_PRICE, billed, 'the books have what was served');
        t.ok(billed > 10 || isFree(way), `${billed} were served`);
        t.match(account.held, /^0(?:\.0+)?$/, 'nothing is held');
      });
    }
  });

  await t.test('at the admin port', async (t) => {
    const { port, token } = gateway.admin;
    const { data: before } = (await gateway.admin.send('GET', '/admin/v1/accounts')).json() as {
      data: unknown;
    };
    await attack(t, gateway, adminCases(port, token), token);
    const { data: after } = (await gateway.admin.send('GET', '/admin/v1/accounts')).json() as {
      data: unknown;
    };
    t.same(after, before, 'accounts and money are as before');
  });

  await t.test('at the sign-in', async (t) => {
    const { statuses } = await attack(t, gateway, signInCases(gateway.admin.port), '');
    t.equal(statuses[429], undefined, 'none was spared by the limit of its address');
  });

  await t.test('heads that no client sends', async (t) => {
    for (const port of [gateway.port, gateway.admin.port])
      await Promise.all(
        HEADS.map(async (head) => {
          const status = await headTold(port, head);
          t.match(status, /^(?:|4\d\d|505)$/, `${JSON.stringify(head.slice(0, 60))}: ${status}`);
        }),
      );
  });

  t.equal(gateway.pid(), pid, 'the gateway that served before serves now');
  t.equal((await gateway.admin.send('GET', '/readyz')).status, 200);
  t.equal(await gateway.stop(), 0);
});
