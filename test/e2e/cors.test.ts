/**
 * Scripts of pages in browsers (`listen.cors`): which origins are told that they may call and read, on every
 * kind of response.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startBed } from '../support/bed.js';
import { checkError } from '../support/error-answer.js';
import { testSettings, TEST_MODEL, type Gateway } from '../support/gateway.js';
import { request, type Answer } from '../support/http.js';

const PAGE = 'https://app.example.com';
const OTHERS = [
  'http://app.example.com',
  'https://app.example.com:8443',
  'https://app.example.com.evil.example',
  'https://evil.example',
  'null',
  '*',
  '',
  'https://APP.example.com',
  '__proto__',
];
const EXPOSED = [
  'x-request-id',
  'x-ratelimit-limit',
  'x-ratelimit-remaining',
  'x-ratelimit-reset',
  'retry-after',
  'request-id',
  'anthropic-ratelimit-requests-remaining',
  'anthropic-ratelimit-tokens-reset',
];
/** Headers that scripts may read of any response, and those that tell a script nothing. */
const OF_NO_NEED = [
  'cache-control',
  'content-length',
  'content-type',
  'allow',
  'connection',
  'date',
  'keep-alive',
  'transfer-encoding',
  'uwebsockets',
  'vary',
  'x-accel-buffering',
];
const CHAT = '/v1/chat/completions';

interface Ask {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Record<string, string>;
  readonly body?: unknown;
}

type Send = (origin: string | undefined, ask: Ask) => Promise<Answer>;

const senderTo =
  (gateway: Gateway): Send =>
  (origin, { method, path = CHAT, headers, body }) =>
    request({
      port: gateway.port,
      method,
      path,
      headers: { ...(origin === undefined ? {} : { origin }), ...headers },
      body,
    });

const messages = [{ role: 'user', content: 'Hello' }];
const preflight = (path: string): Ask => ({
  path,
  method: 'OPTIONS',
  headers: {
    'access-control-request-method': 'POST',
    'access-control-request-headers': 'authorization, content-type, x-stainless-os',
  },
});

/** Every kind of response: by whom it is written, its status. */
function asksOf(key: string): [string, number, Ask][] {
  const authorization = `Bearer ${key}`;
  const body = { model: TEST_MODEL, messages };
  const own = { headers: { authorization } };
  return [
    ['a whole answer', 200, { ...own, body }],
    ['the same of the cache, if there is one', 200, { ...own, body }],
    ['a message', 200, { ...own, path: '/v1/messages', body: { ...body, max_tokens: 5 } }],
    ['a stream', 200, { ...own, body: { ...body, stream: true } }],
    ['an answer that is kept', 200, { headers: { authorization, 'idempotency-key': 'k-1' }, body }],
    ['its repeat', 200, { headers: { authorization, 'idempotency-key': 'k-1' }, body }],
    ['a wrong body', 400, { ...own, body: '{' }],
    [
      'a head that can be read in two ways',
      400,
      { headers: { host: 'a', 'transfer-encoding': 'gzip' }, path: '/v1/models' },
    ],
    ['no key', 401, { body }],
    ['a compressed body', 415, { headers: { authorization, 'content-encoding': 'gzip' }, body }],
    ['an unknown model', 400, { ...own, body: { ...body, model: 'none' } }],
    ['the list of models', 200, { ...own, path: '/v1/models' }],
    ['a head alone', 200, { ...own, path: '/v1/models', method: 'HEAD' }],
    ['no such model', 404, { ...own, path: '/v1/models/none' }],
    ['a wrong method', 405, { ...own, method: 'PUT' }],
    ['no such path', 404, { path: '/v1/nothing' }],
    ['the document', 200, { path: '/openapi.json' }],
  ];
}

function checkAllowed(t: Test, { headers }: Answer, origin: string): void {
  t.equal(headers['access-control-allow-origin'], origin);
  const exposed = headers['access-control-expose-headers']?.split(', ') ?? [];
  for (const name of EXPOSED) t.ok(exposed.includes(name), name);
  for (const name of Object.keys(headers))
    if (!name.startsWith('access-control-') && !OF_NO_NEED.includes(name))
      t.ok(exposed.includes(name), `${name}, which a response has`);
  t.equal(headers['access-control-allow-credentials'], undefined, 'keys are no cookies');
}

function namesOf({ headers }: Answer): string[] {
  return Object.keys(headers).filter((name) => name.startsWith('access-control-') || name === 'vary');
}

void t.test('the pages that are named may call and read, others not', async (t) => {
  const cors = { origins: ['http://localhost:3000', PAGE], max_age_seconds: 77 };
  const { gateway } = await startBed(t, { listen: { cors }, cache: { ttl_seconds: 600 } });
  const { key } = await gateway.admin.customer();
  const send = senderTo(gateway);
  for (const [what, status, ask] of asksOf(key)) {
    const answer = await send(PAGE, ask);
    t.equal(answer.status, status, what);
    checkAllowed(t, answer, PAGE);
    t.equal(answer.headers.vary, 'origin');
  }
  for (const origin of [undefined, ...OTHERS])
    for (const path of ['/v1/models', CHAT]) {
      const answer = await send(origin, { path, headers: { authorization: `Bearer ${key}` } });
      t.equal(answer.status, path === CHAT ? 405 : 200, `${origin} ${path}`);
      t.same(namesOf(answer), ['vary'], 'a cache must tell them apart');
    }

  for (const path of [CHAT, '/v1/models', '/v1/models/some/name', '/v1/nothing']) {
    const asked = await send(PAGE, preflight(path));
    t.equal(asked.status, 204, path);
    checkAllowed(t, asked, PAGE);
    t.equal(asked.headers['access-control-max-age'], '77');
    t.match(asked.headers['access-control-allow-methods'], 'POST');
    const allowed = asked.headers['access-control-allow-headers']?.split(', ') ?? [];
    for (const name of ['authorization', 'content-type', 'idempotency-key', '*'])
      t.ok(allowed.includes(name));
    t.equal(asked.headers['content-length'], undefined);
    t.ok(asked.headers['x-request-id']);
    for (const origin of OTHERS) {
      const refused = await send(origin, preflight(path));
      t.equal(refused.status, 204, origin);
      t.same(namesOf(refused), ['vary']);
    }
  }
  checkError(t, await send(undefined, preflight(CHAT)), 'method_not_allowed', 'no browser');
  checkError(t, await send(PAGE, { method: 'OPTIONS' }), 'method_not_allowed', 'no preflight');
});

void t.test('every page, and what a reload changes', async (t) => {
  const { gateway, mock } = await startBed(t, { listen: { cors: { origins: ['*'] } } });
  const { key } = await gateway.admin.customer();
  const send = senderTo(gateway);
  for (const origin of [PAGE, undefined, ...OTHERS]) {
    const answer = await send(origin, { body: { model: TEST_MODEL, messages } });
    t.equal(answer.status, 401);
    checkAllowed(t, answer, '*');
    t.equal(answer.headers.vary, undefined, 'all are answered alike');
  }
  t.equal((await send(PAGE, preflight(CHAT))).headers['access-control-max-age'], '600');

  const reload = async (listen: object): Promise<unknown> => {
    writeFileSync(join(gateway.folder, 'tollgate.yaml'), JSON.stringify(testSettings(mock.url, { listen })));
    const answer = await gateway.admin.send('POST', '/admin/v1/reload', {});
    t.equal(answer.status, 200, answer.body);
    return (answer.json() as { applied: unknown }).applied;
  };
  t.same(await reload({ cors: { origins: [PAGE] } }), ['listen.cors']);
  checkAllowed(t, await send(PAGE, {}), PAGE);
  t.same(namesOf(await send('https://evil.example', {})), ['vary']);

  t.same(await reload({}), ['listen.cors']);
  for (const [what, status, ask] of asksOf(key)) {
    const answer = await send(PAGE, ask);
    t.equal(answer.status, status, what);
    t.same(namesOf(answer), [], 'off');
  }
  checkError(t, await send(PAGE, preflight(CHAT)), 'method_not_allowed', 'off');
});
