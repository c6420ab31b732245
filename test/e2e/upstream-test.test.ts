/**
 * `upstreams test` and `config check --probe`: each mistake of an operator is told with what to do, and no
 * key is shown.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer as createPlainServer, type Server } from 'node:net';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { runCommand } from '../support/command.js';

const KEY = 'sk-test-0123456789abcdefghij';
const PLANS = [{ id: 'any', requests_per_minute: 1, calls_per_day: 1 }];
const GOOD = { model: 'big-1', choices: [{}], usage: { prompt_tokens: 3, completion_tokens: 1 } };

interface View {
  readonly model: string;
  readonly ok: boolean;
  readonly status: number | null;
  readonly first_byte_ms: number | null;
  readonly answered_model: string | null;
  readonly usage_reported: boolean | null;
  readonly result: string;
  readonly advice: string | null;
}

interface Reply {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

const html = (status: number): Reply => ({
  status,
  body: '<!doctype html><p>hello',
  headers: { 'content-type': 'text/html' },
});
const fault = (status: number, message: string, code?: string): Reply => ({
  status,
  body: { error: { message, ...(code === undefined ? {} : { code }) } },
});

/** By the path of the call without `/chat/completions`. */
const REPLIES: Readonly<Record<string, Reply>> = {
  '/good/v1': { status: 200, body: GOOD },
  '/silent/v1': { status: 200, body: { ...GOOD, usage: undefined } },
  '/denied/v1': fault(401, `bad key ${KEY}`),
  '/locked/v1': fault(401, 'no key'),
  '/forbidden/v1': fault(403, Buffer.from(KEY).toString('base64')),
  '/unknown/v1': fault(404, 'The model does not exist', 'model_not_found'),
  '/ollama/v1': fault(404, 'model "m" not found, try pulling it first'),
  '/page/v1': html(200),
  '/lost/v1': html(404),
  '/empty/v1': { status: 404, body: {} },
  '/bare': html(404),
  '/moved/v1': { status: 301, body: '', headers: { location: 'https://elsewhere.test/v1' } },
  '/poor/v1': fault(402, 'pay'),
  '/busy/v1': fault(429, 'slow down'),
  '/broken/v1': fault(500, 'oh'),
  '/other/v1': { status: 200, body: { hello: 1 } },
  '/endless/v1': { status: 200, body: { text: 'x'.repeat(1_000_000) } },
};

async function listening(t: Test, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

async function serve(t: Test): Promise<number> {
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const path = request.url!.slice(0, -'/chat/completions'.length);
    const isNewer = path === '/newer/v1';
    const reply = isNewer
      ? body.includes('max_completion_tokens')
        ? REPLIES['/good/v1']!
        : fault(400, "Use 'max_completion_tokens' instead.")
      : (REPLIES[path] ?? { status: 404, body: '' });
    response.writeHead(reply.status, { 'content-type': 'application/json', ...reply.headers });
    response.end(typeof reply.body === 'string' ? reply.body : JSON.stringify(reply.body));
  };
  return listening(
    t,
    createServer((request, response) => void answer(request, response)),
  );
}

function writeSettings(folder: string, urls: Readonly<Record<string, string>>): void {
  const models = Object.entries(urls).map(([id, url]) => ({
    id,
    aliases: [`other-${id}`],
    owned_by: 'somebody',
    max_output_tokens: 100,
    upstreams: [{ url, ...(id === 'keyless' ? {} : { key: '${TEST_KEY}' }) }],
  }));
  writeFileSync(join(folder, 'tollgate.yaml'), JSON.stringify({ models, plans: PLANS }));
}

void t.test('each answer and fault has its advice', async (t) => {
  const port = await serve(t);
  const closed = createPlainServer();
  const closedPort = await listening(t, closed);
  closed.close();
  await once(closed, 'close');
  const garbagePort = await listening(
    t,
    createPlainServer((socket) => socket.on('error', () => undefined).end('SSH-2.0-x\r\n\r\n')),
  );
  const at = (path: string): string => `http://127.0.0.1:${port}${path}`;
  const CASES: Readonly<Record<string, readonly [url: string, ok: boolean, said: RegExp]>> = {
    good: [at('/good/v1'), true, /^status 200 null$/],
    newer: [at('/newer/v1'), true, /^status 200 .*set member_names: \{max_tokens: max_completion_tokens\}/],
    'gpt-5': [at('/newer/v1'), true, /^status 200 null$/],
    builtin: ['echo:', true, /built in/],
    silent: [at('/silent/v1'), true, /reports no usage/],
    denied: [at('/denied/v1'), false, /status 401: bad key \*\*\* .*key or key_file/],
    keyless: [at('/locked/v1'), false, /none is set: set key/],
    forbidden: [at('/forbidden/v1'), false, /status 403.*key or key_file/],
    unknown: [at('/unknown/v1'), false, /does not know the model unknown: set model:/],
    ollama: [at('/ollama/v1'), false, /does not know the model ollama: set model:/],
    page: [at('/page/v1'), false, /status 200, HTML .*there is no API/],
    lost: [at('/lost/v1'), false, /status 404, HTML .*there is no API/],
    empty: [at('/empty/v1'), false, /status 404 .*there is no API/],
    bare: [at('/bare'), false, /no \/v1, try http:\/\/127\.0\.0\.1:\d+\/bare\/v1$/],
    full: [at('/good/v1/chat/completions'), false, /which is added to it: set it to .*\/good\/v1$/],
    moved: [at('/moved/v1'), false, /redirects to https:\/\/elsewhere\.test\/v1/],
    poor: [at('/poor/v1'), false, /no credit left/],
    busy: [at('/busy/v1'), false, /no quota left now/],
    broken: [at('/broken/v1'), false, /status 500: oh the provider fails/],
    other: [at('/other/v1'), false, /no chat completion/],
    endless: [at('/endless/v1'), false, /too long an answer/],
    refused: [`http://127.0.0.1:${closedPort}/v1`, false, /ECONNREFUSED.*nothing listens at 127/],
    garbage: [
      `http://127.0.0.1:${garbagePort}/v1`,
      false,
      /HTTP1_.*not answer in HTTP\/1\.1; if it speaks TLS/,
    ],
    plain: [`https://127.0.0.1:${port}/v1`, false, /TLS fails.*begins with http:/],
    nowhere: ['https://no-such-host.invalid/v1', false, /ENOTFOUND|EAI_AGAIN.*cannot be resolved/],
  };
  const folder = t.testdir();
  writeSettings(folder, Object.fromEntries(Object.entries(CASES).map(([id, [url]]) => [id, url])));
  const end = await runCommand(folder, ['upstreams', 'test', '--json'], { TEST_KEY: KEY });
  t.equal(end.code, 1, end.stderr);
  const { data } = end.json() as { data: readonly View[] };
  t.equal(data.length, Object.keys(CASES).length);
  for (const view of data) {
    const [, ok, said] = CASES[view.model]!;
    t.equal(view.ok, ok, view.model);
    t.match(`${view.result} ${view.advice}`, said, view.model);
  }
  const good = data.find(({ model }) => model === 'good')!;
  t.match(good, { status: 200, answered_model: 'big-1', usage_reported: true });
  t.ok(good.first_byte_ms !== null && good.first_byte_ms >= 0);

  const text = await runCommand(folder, ['config', 'check', '--probe'], { TEST_KEY: KEY });
  t.equal(text.code, 1, text.stderr);
  t.match(text.stdout, /which is added to it/);
  const report = await runCommand(folder, ['config', 'check', '--probe', '--json'], { TEST_KEY: KEY });
  t.match(report.json(), {
    ok: false,
    problems: [],
    upstreams: data.map(({ model, ok }) => ({ model, ok })),
  });
  for (const { stdout, stderr } of [end, text, report]) {
    const all = stdout + stderr;
    t.notOk(all.includes(KEY) || all.includes(Buffer.from(KEY).toString('base64')), 'no key is shown');
  }
});

void t.test('one model alone, by id or alias; one that is not there is refused', async (t) => {
  const port = await serve(t);
  const folder = t.testdir();
  const at = (path: string): string => `http://127.0.0.1:${port}${path}`;
  writeSettings(folder, { good: at('/good/v1'), broken: at('/broken/v1') });
  for (const name of ['good', 'other-good']) {
    const end = await runCommand(folder, ['upstreams', 'test', name], { TEST_KEY: KEY });
    t.equal(end.code, 0, end.stderr);
    t.match(end.stdout, /good.*yes.*big-1.*reported/);
    t.notMatch(end.stdout, /broken/);
  }
  const end = await runCommand(folder, ['upstreams', 'test', 'none'], { TEST_KEY: KEY });
  t.equal(end.code, 1);
  t.match(end.stderr, /no model 'none'/);
});

void t.test('who tests with other variables than the gateway has is told so', async (t) => {
  const port = await serve(t);
  const folder = t.testdir();
  const at = (path: string): string => `http://127.0.0.1:${port}${path}`;
  const remark =
    /^The settings were read with the variables of this shell\. .* run the command with the same\.$/m;
  writeSettings(folder, { denied: at('/denied/v1') });
  for (const command of [
    ['upstreams', 'test'],
    ['config', 'check', '--probe'],
  ]) {
    const { code, stderr } = await runCommand(folder, command, { TEST_KEY: KEY });
    t.equal(code, 1);
    t.match(stderr, remark, 'the key may be another one');
  }
  const { code, stderr } = await runCommand(folder, ['upstreams', 'test']);
  t.equal(code, 1);
  t.match(stderr, /TEST_KEY is not set$/m);
  t.match(stderr, remark);
  writeSettings(folder, { good: at('/good/v1') });
  t.equal((await runCommand(folder, ['upstreams', 'test'], { TEST_KEY: KEY })).stderr, '');
});

void t.test('a model is called for what it serves', async (t) => {
  const asked: Record<string, unknown> = {};
  const replies: Readonly<Record<string, object>> = {
    '/v1/embeddings': {
      model: 'e-1',
      data: [{ embedding: [0] }],
      usage: { prompt_tokens: 1, total_tokens: 1 },
    },
    '/v1/completions': { model: 'c-1', choices: [{ text: 'OK' }], usage: { prompt_tokens: 1 } },
    '/v1/moderations': { model: 'm-1', results: [{ flagged: false }] },
    '/v1/rerank': { results: [{ index: 0 }] },
    '/openai/deployments/embeddings/embeddings': { model: 'e-2', data: [], usage: { prompt_tokens: 1 } },
    '/v1/chat/completions': GOOD,
  };
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    let body = '';
    for await (const chunk of request) body += String(chunk);
    const path = request.url!.replace(/\?.*$/, '');
    asked[path] = JSON.parse(body);
    const reply = replies[path];
    response.writeHead(reply === undefined ? 404 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(reply ?? { error: { message: 'This is not a chat model' } }));
  };
  const port = await listening(
    t,
    createServer((request, response) => void answer(request, response)),
  );
  const origin = `http://127.0.0.1:${port}`;
  const served = (serves: string[], more: object = { url: `${origin}/v1` }, id = serves.join('-')) => ({
    id,
    owned_by: 'somebody',
    serves,
    max_output_tokens: 100,
    upstreams: [{ key: '${TEST_KEY}', model: serves[0], ...more }],
  });
  const models = [
    ...['embeddings', 'completions', 'moderations', 'rerank'].map((service) => served([service])),
    served(['moderations', 'chat']),
    served(['embeddings'], { url: origin, provider: 'azure' }, 'azure'),
    served(['rerank'], { url: `${origin}/elsewhere/v1` }, 'lost'),
  ];
  const folder = t.testdir({ 'tollgate.yaml': JSON.stringify({ models, plans: PLANS }) });
  const end = await runCommand(folder, ['upstreams', 'test', '--json'], { TEST_KEY: KEY });
  const { data } = end.json() as { data: readonly View[] };
  t.match(
    data.map(({ model, ok, answered_model: answered, usage_reported: usage }) => [
      model,
      ok,
      answered,
      usage,
    ]),
    [
      ['embeddings', true, 'e-1', true],
      ['completions', true, 'c-1', true],
      ['moderations', true, 'm-1', null],
      ['rerank', true, null, null],
      ['moderations-chat', true, 'big-1', true],
      ['azure', true, 'e-2', true],
      ['lost', false, null, null],
    ],
  );
  for (const { advice, ok } of data) if (ok) t.equal(advice, null);
  t.match(
    data.at(-1)!.advice,
    /^there is no API for reranks at .*\/elsewhere\/v1\/rerank: set url to the base/,
  );
  t.match(asked, {
    '/v1/embeddings': { model: 'embeddings', input: 'OK' },
    '/v1/completions': { model: 'completions', prompt: 'Say OK.', max_tokens: 16 },
    '/v1/moderations': { input: 'OK' },
    '/v1/rerank': { query: 'OK', documents: ['OK'] },
  });
});
