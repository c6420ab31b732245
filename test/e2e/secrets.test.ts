/**
 * Secrets stay where they belong: a gateway that has been through every route and every kind of failure has
 * told none of them, in no spelling, to a caller, a log, a file of its books or the list of processes.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { Test } from 'tap';
import {
  answerOf,
  chunkOf,
  DONE,
  type Script,
  sse,
  startUpstream,
  USAGE,
} from '../fixtures/upstream-server.js';
import { runCommand } from '../support/command.js';
import { eventually, startGateway, temporaryFolder, type Gateway } from '../support/gateway.js';
import { request, type Answer } from '../support/http.js';

const KEY_OF_ENVIRONMENT = 'sk-provider-of-environment-0123456789';
const KEY_OF_FILE = 'sk-provider-of-file-0123456789';
const KEY_OF_FILE_LATER = 'sk-provider-of-file-later-0123456789';
const HEADER_SECRET = 'header-secret-0123456789';
/** Described in the document as the others are, but it answers without an end. */
const LIVE_PATH = '/admin/v1/live';
const WEBHOOK_SECRET = `whsec_${Buffer.alloc(32, 'webhook').toString('base64')}`;
const PROVIDERS = [KEY_OF_ENVIRONMENT, KEY_OF_FILE, KEY_OF_FILE_LATER, HEADER_SECRET, WEBHOOK_SECRET];

/** Longer than a turn of a busy worker. */
const ERROR_DELAY_MS = 100;

/**
 * Does what the prompt says: a status with a message that repeats all that it was sent, or a stream that
 * breaks.
 */
const upstreamScript: Script = (incoming, response, body) => {
  if (incoming.url === '/hook') {
    response.writeHead(500).end(JSON.stringify(incoming.headers));
    return;
  }
  const { messages, stream } = JSON.parse(body) as { messages: { content: string }[]; stream?: boolean };
  const word = messages[0]!.content.split(' ')[0]!;
  const echo = `Incorrect credentials: ${JSON.stringify(incoming.headers)}`;
  const error = { error: { message: echo, type: 'invalid_request_error', code: 'invalid_api_key' } };
  if (/^\d+$/.test(word)) {
    response.writeHead(Number(word), { 'content-type': 'application/json', 'x-echo': encodeURI(echo) });
    response.end(JSON.stringify(error));
  } else if (word === 'reset') {
    response.destroy();
  } else if (word === 'garbage') {
    response.writeHead(200, { 'content-type': 'application/json' }).end(echo);
  } else if (stream === true) {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(sse(chunkOf('Hello')));
    // What comes with the first events is held back with them: only later is it an error within the stream.
    if (word === 'error-event') setTimeout(() => response.end(sse(error)), ERROR_DELAY_MS);
    else response.end(`${sse(chunkOf('', 'stop'))}${DONE}`);
  } else {
    response.writeHead(200, { 'content-type': 'application/json' }).end(answerOf(USAGE));
  }
};

const SPELLINGS: readonly ((secret: string) => string)[] = [
  (secret) => secret,
  // The last group depends on what follows, and is left out.
  (secret) => Buffer.from(secret.slice(0, Math.floor(secret.length / 3) * 3)).toString('base64'),
  (secret) => Buffer.from(secret.slice(0, Math.floor(secret.length / 3) * 3)).toString('base64url'),
  (secret) => Buffer.from(secret).toString('hex'),
  (secret) => Buffer.from(secret).toString('hex').toUpperCase(),
  (secret) => encodeURIComponent(secret),
];

/** Where things were said, and all that was said there. */
type Place = readonly [name: string, text: Buffer];

function placesWith(secrets: readonly string[], places: readonly Place[]): string[] {
  return places.flatMap(([name, text]) =>
    secrets.flatMap((secret, index) =>
      SPELLINGS.some((spell) => text.includes(spell(secret))) ? [`${name} holds secret ${index}`] : [],
    ),
  );
}

/** Every file below `folder`. */
function filesOf(folder: string, except: readonly string[]): Place[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((file) => file.isFile() && !except.includes(file.name))
    .map((file) => [file.name, readFileSync(join(file.parentPath, file.name))]);
}

/** Command lines and titles of a process, its threads and all that it started. */
function processesOf(pid: number): Place[] {
  const tasks = readdirSync(`/proc/${pid}/task`);
  const own = ['cmdline', 'comm', ...tasks.map((task) => `task/${task}/comm`)].map((file): Place => [
    `${pid} ${file}`,
    readFileSync(`/proc/${pid}/${file}`),
  ]);
  const children = tasks.flatMap((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').split(' ').filter(Boolean),
  );
  return [...own, ...children.flatMap((child) => processesOf(Number(child)))];
}

/** The first two events of the stream that has no end: the course of the figures, and the status. */
async function liveEvents({ admin }: Gateway): Promise<string> {
  const leaving = new AbortController();
  const { body } = await fetch(`http://127.0.0.1:${admin.port}${LIVE_PATH}`, {
    headers: { authorization: `Bearer ${admin.token}` },
    signal: leaving.signal,
  });
  let text = '';
  const decoder = new TextDecoder();
  for await (const bytes of body!) {
    text += decoder.decode(bytes as Uint8Array, { stream: true });
    if (text.split('\n\n').length > 2) break;
  }
  leaving.abort();
  return text;
}

/** Asks, and keeps what is answered. */
class Asker {
  readonly gateway: Gateway;
  readonly said: Place[] = [];
  readonly #t: Test;

  constructor(t: Test, gateway: Gateway) {
    this.#t = t;
    this.gateway = gateway;
  }

  keep(name: string, { status, headers, body }: Answer): Answer {
    this.said.push([`${name} (${status})`, Buffer.from(JSON.stringify(headers) + body)]);
    return { status, headers, body, json: () => JSON.parse(body) as unknown };
  }

  /** A call that ends with `status`. */
  async call(key: string, prompt: string, status: number, more: object = {}): Promise<void> {
    const body = { model: 'by-environment', messages: [{ role: 'user', content: prompt }], ...more };
    const answer = this.keep(prompt, await this.gateway.request(key, { body }));
    this.#t.equal(answer.status, status, `${prompt}: ${answer.body}`);
  }

  /** A request of the public interface that is refused. */
  async refused(
    name: string,
    headers: Readonly<Record<string, string>>,
    path = '/v1/models',
    status = 401,
  ): Promise<void> {
    const answer = this.keep(name, await request({ port: this.gateway.port, path, headers }));
    this.#t.equal(answer.status, status, `${name}: ${answer.body}`);
  }

  /** A request of the admin interface with the token. */
  async admin(method: string, path: string, body?: object): Promise<Answer> {
    return this.keep(`${method} ${path}`, await this.gateway.admin.send(method, `/admin/v1${path}`, body));
  }

  /** As `admin`, for a response that holds a new key, or an operator's new token: that. */
  async made(path: string, body: object): Promise<string> {
    const answer = await this.gateway.admin.send('POST', `/admin/v1${path}`, body);
    this.#t.equal(answer.status, 200, answer.body);
    return /(?:sk-|tgop_)[\w-]{43}/.exec(answer.body)![0];
  }
}

function settingsOf(origin: string): object {
  const upstream = { url: `${origin}/v1`, breaker_failures: 0 };
  const headers = { 'X-Secret': '${HEADER_SECRET}', 'X-Basic': 'Basic ${HEADER_SECRET}' };
  return {
    models: [
      { id: 'by-environment', upstreams: [{ ...upstream, key: '${PROVIDER_KEY}', headers }] },
      { id: 'by-file', upstreams: [{ ...upstream, key_file: 'provider-key' }] },
    ],
    plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }],
    usage_log: { path: 'usage.jsonl' },
    access_log: { enabled: true },
    call_log: { contents: 'all' },
    notify: { url: `${origin}/hook`, secret: '${WEBHOOK_SECRET}', low_balance: '9999.00' },
  };
}

void t.test('a gateway that went through everything has told no secret', async (t) => {
  const upstream = await startUpstream(upstreamScript);
  t.teardown(() => upstream.close());
  const folder = temporaryFolder(t);
  const keyFile = join(folder, 'provider-key');
  writeFileSync(keyFile, `${KEY_OF_FILE}\n`);
  const gateway = await startGateway(t, {
    folder,
    config: settingsOf(upstream.origin),
    env: { PROVIDER_KEY: KEY_OF_ENVIRONMENT, HEADER_SECRET, WEBHOOK_SECRET },
  });
  const asker = new Asker(t, gateway);
  const { token } = gateway.admin;

  await asker.admin('POST', '/accounts', { name: 'acme', plan: 'ample', credit: '10.00' });
  const key = await asker.made('/keys', { account: 'acme', name: 'laptop' });
  const former = await asker.made('/keys', { account: 'acme', name: 'rotated' });
  const current = await asker.made('/keys/rotated/rotate', { grace: 0 });
  const disabled = await asker.made('/keys', { account: 'acme', name: 'disabled' });
  const deleted = await asker.made('/keys', { account: 'acme', name: 'deleted' });
  const bulk = await asker.made('/bulk', {
    accounts: [{ name: 'bulk', plan: 'ample', credit: '1.00', keys: [{ name: 'of-bulk' }] }],
  });
  await asker.admin('POST', '/groups', { name: 'research', spend_per_month: '1.00' });
  await asker.admin('POST', '/accounts/acme/set-group', { group: 'research' });
  await asker.admin('POST', '/keys/disabled/disable');
  await asker.admin('DELETE', '/keys/deleted');
  const keys = [key, former, current, disabled, deleted, bulk];
  const formerToken = await asker.made('/operators', { name: 'ann', role: 'admin' });
  const tokens = [
    formerToken,
    await asker.made('/operators/ann/rotate', {}),
    await asker.made('/operators', { name: 'bob', role: 'viewer' }),
  ];
  await asker.admin('POST', '/operators/bob/disable');
  const signingIn = { port: gateway.admin.port, path: '/admin/session', method: 'POST' };
  for (const sent of tokens) {
    const headers = { 'x-tollgate-console': '1' };
    asker.keep('signing in', await request({ ...signingIn, headers, body: { token: sent } }));
  }

  for (const used of [key, current, bulk]) await asker.call(used, 'Hello', 200);
  await asker.call(key, 'Hello stream', 200, { stream: true });
  for (const model of ['by-environment', 'by-file']) {
    for (const status of ['400', '409', '413', '422']) await asker.call(key, status, 400, { model });
    // An operator's mistake, and no caller's.
    await asker.call(key, '404', 502, { model });
    for (const status of ['401', '402', '403', '418', '429', '500', '503', 'reset', 'garbage']) {
      await asker.call(key, status, 502, { model });
    }
    await asker.call(key, 'error-event', 200, { model, stream: true });
  }
  t.ok(
    upstream.requests.some(({ headers }) => headers['x-secret'] === HEADER_SECRET) &&
      upstream.requests.some(({ headers }) => headers.authorization === `Bearer ${KEY_OF_FILE}`),
    'the upstream had the secrets that it repeated',
  );

  await eventually('a webhook', () =>
    upstream.requests.some(({ headers }) => headers['webhook-signature'] !== undefined) ? true : undefined,
  );

  await asker.refused('nothing', {});
  for (const authorization of [
    ...['Bearer', 'Bearer ', `Basic ${Buffer.from(`user:${key}`).toString('base64')}`, `Token ${key}`, key],
    ...[`Bearer ${key}x`, `Bearer ${key.slice(0, -1)}`, `Bearer ${key.toUpperCase()}`, `Bearer ${token}`],
    ...[`Bearer "${key}"`, `Bearer ${key} ${key}`, `Bearer ${former}x`, `Bearer ${deleted}`],
  ]) {
    await asker.refused(`authorization ${keys.indexOf(authorization)}`, { authorization });
  }
  await asker.refused('key in another header', { 'api-key': key });
  await asker.refused('a wrong key in x-api-key', { 'x-api-key': `${key}x` });
  await asker.refused('key in the query', {}, `/v1/models?api_key=${key}`);
  for (const used of [disabled, former]) {
    await asker.refused('disabled', { authorization: `Bearer ${used}` }, '/v1/models', 403);
  }
  await asker.call(key, 'Hello', 400, { temperature: 3 });
  // The caller is told what it sent itself, and nobody else.
  for (const wrong of [{ model: key }, { model: `Bearer ${current}` }, { temperature: key }]) {
    const body = { model: 'by-environment', messages: [{ role: 'user', content: 'Hello' }], ...wrong };
    const { status, body: told } = await gateway.request(key, { body });
    t.equal(status, 400, told);
    t.match(told, /sk-[\w-]/);
  }
  asker.keep('no JSON', await gateway.request(key, { body: `{"model":` }));
  asker.keep('models', await gateway.request(key, { path: '/v1/models', method: 'GET' }));
  asker.keep('model', await gateway.request(key, { path: '/v1/models/by-file', method: 'GET' }));

  const document = (await asker.admin('GET', '/openapi.json')).json() as { paths: Record<string, object> };
  for (const [path, methods] of Object.entries(document.paths)) {
    if (!('get' in methods)) continue;
    if (path === LIVE_PATH) continue;
    const of = path
      .slice('/admin/v1'.length)
      .replace('{account}', 'acme')
      .replace('{key}', 'laptop')
      .replace('{group}', 'research')
      .replace('{operator}', 'ann');
    // There are no hosts without sharing, and no call of that name.
    const wanted = of === '/hosts' ? 409 : of.startsWith('/calls/{call}') ? 404 : 200;
    t.equal((await asker.admin('GET', of)).status, wanted, of);
  }
  asker.said.push([LIVE_PATH, Buffer.from(await liveEvents(gateway))]);
  for (const path of ['/healthz', '/readyz', '/metrics', '/admin/v1/status', '/openapi.json']) {
    asker.keep(path, await request({ port: gateway.admin.port, path }));
    asker.keep(path, await request({ port: gateway.port, path }));
  }
  for (const wrong of [`${token}x`, token.slice(1), key, ...tokens, `${formerToken}x`]) {
    const headers = { authorization: `Bearer ${wrong}` };
    asker.keep('token', await request({ port: gateway.admin.port, path: '/admin/v1/keys', headers }));
  }
  // A key in the place of something else. What the request itself holds is not repeated either.
  const pasted: readonly (readonly [string, string, object?])[] = [
    ['POST', `/keys/${key}/disable`],
    ['GET', `/accounts/${key}`],
    ['POST', '/keys', { account: key, name: 'x' }],
    ['POST', '/accounts', { name: key, plan: 'ample' }],
    ['POST', '/accounts/acme/credit', { amount: '1.00', idempotency_key: key }],
    ['GET', `/operators/${tokens[1]}`],
    ['POST', '/operators', { name: tokens[1], role: 'viewer' }],
    ['POST', '/accounts', { name: tokens[1], plan: 'ample' }],
  ];
  for (const [method, path, body] of pasted) {
    const answer = await gateway.admin.send(method, `/admin/v1${path}`, body);
    asker.said.push([`a key for something else: ${method}`, Buffer.from(answer.body)]);
    t.equal(answer.status, 400, answer.body);
  }

  writeFileSync(keyFile, KEY_OF_FILE_LATER);
  t.match((await asker.admin('POST', '/reload', { dry_run: true })).body, /by-file/);
  t.match((await asker.admin('POST', '/reload')).body, /by-file/);
  await asker.call(key, '400', 400, { model: 'by-file' });
  const last = upstream.requests.findLast(({ headers }) => headers.authorization !== undefined);
  t.equal(last?.headers.authorization, `Bearer ${KEY_OF_FILE_LATER}`);
  writeFileSync(keyFile, `${KEY_OF_FILE} ${KEY_OF_FILE_LATER}`);
  t.equal((await asker.admin('POST', '/reload')).status, 400, 'no key has a space');
  for (const args of [
    ['status', '--json'],
    ['keys', 'list'],
    ['operators', 'list', '--json'],
    ['changes', 'list', '--json'],
    ['operators', 'show', 'ann'],
    ['accounts', 'list', '--json'],
    ['config', 'check'],
    ['audit'],
  ]) {
    const { stdout, stderr } = await runCommand(folder, args);
    asker.said.push([`tollgate ${args.join(' ')}`, Buffer.from(stdout + stderr)]);
  }
  await eventually('the usage log', () => (existsSync(join(folder, 'usage.jsonl')) ? true : undefined));

  const processes = processesOf(gateway.child.pid);
  t.ok(processes.length > 10, 'the supervisor, the gateway and their threads');
  const running = filesOf(gateway.dataFolder, ['admin-token']);
  t.ok(running.some(([name]) => name === 'gateway.json'));
  t.equal(await gateway.stop(), 0);
  const places: Place[] = [
    ...asker.said,
    ...processes,
    ...running,
    ...filesOf(folder, ['admin-token', 'provider-key']),
    ['stderr', Buffer.from(gateway.child.stderr())],
    ['stdout', Buffer.from(gateway.child.stdout())],
  ];
  t.match(gateway.child.stderr(), /an upstream refuses our key/, 'the log has something to tell');
  t.same(placesWith([...keys, ...tokens, ...PROVIDERS, token], places), []);
  // The search must be able to find.
  t.same(placesWith([token], filesOf(gateway.dataFolder, ['gateway.json'])), ['admin-token holds secret 0']);
  t.ok(placesWith(['by-file'], places).length > 2);
});
