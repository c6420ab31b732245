/**
 * Credentials that expire, through a gateway with two workers: one renewal for all of them, no call that
 * fails over it, what a provider or a token server does wrong, and no token anywhere but at the provider.
 * With several processes each renews for itself; a reload adds and removes them.
 */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { runCommand } from '../support/command.js';
import {
  eventually,
  knownEverywhere,
  startGateway,
  temporaryFolder,
  type Gateway,
} from '../support/gateway.js';
import { request } from '../support/http.js';
import {
  countedKeys,
  countedTokens,
  startTokenServer,
  writeServiceAccount,
  type TokenReply,
  type TokenScript,
} from '../support/token-server.js';

/** What tokens and keys of the token server begin with. */
const SECRETS = ['ya29.secret', 'eyJ-entra-secret', 'wJalrXUtnFEMI', 'FwoGZXIvYXdz', 'AKIDEXAMPLE'];
const MODELS = ['azure', 'vertex', 'bedrock'] as const;
type Model = (typeof MODELS)[number];
const LIFE_SECONDS = 20;
/** So soon a credential is renewed at the earliest: half of its life, less a share at random. */
const RENEWED_MS_MIN = 0.45 * LIFE_SECONDS * 1_000;
/** Of each reply of a slow token server: within what is left of a life at its renewal. */
const DELAY_MS = 3_000;
const PROCESSES = 2;
/** Of each of four to six callers: calls begin every few milliseconds, and other tests have time too. */
const CALL_PAUSE_MS = 50;
/** While no credential changes, in which calls show the same again and again. */
const QUIET_PAUSE_MS = 250;
const SETTLED_MS = 1_000;

const BODIES: Readonly<Record<Model, object>> = {
  azure: {
    id: 'c',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
  },
  vertex: {
    candidates: [{ content: { role: 'model', parts: [{ text: 'Hi' }] }, finishReason: 'STOP', index: 0 }],
    usageMetadata: { promptTokenCount: 3, candidatesTokenCount: 1, totalTokenCount: 4 },
  },
  bedrock: {
    output: { message: { role: 'assistant', content: [{ text: 'Hi' }] } },
    stopReason: 'end_turn',
    usage: { inputTokens: 3, outputTokens: 1, totalTokens: 4 },
    metrics: { latencyMs: 1 },
  },
};

/** The three providers at one address. A prompt with `reject` gets 401 and all that was sent. */
async function startProviders(t: Test) {
  const seen: Record<string, Set<string>> = { azure: new Set(), vertex: new Set(), bedrock: new Set() };
  const server = createServer((incoming, response) => {
    const { url = '', headers } = incoming;
    const name = url.includes('/openai/') ? 'azure' : url.includes('/projects/') ? 'vertex' : 'bedrock';
    const token = name === 'bedrock' ? headers['x-amz-security-token'] : headers.authorization;
    seen[name]!.add(String(token));
    let body = '';
    incoming.on('data', (chunk: Buffer) => (body += chunk.toString()));
    incoming.on('end', () => {
      const isRejected = body.includes('reject');
      const message = `no: ${JSON.stringify(headers)}`;
      response.writeHead(isRejected ? 401 : body.includes('wrong') ? 400 : 200, {
        'content-type': 'application/json',
      });
      const isBad = isRejected || body.includes('wrong');
      response.end(JSON.stringify(isBad ? { message, error: { message, code: 400 } } : BODIES[name]));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { seen, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

function settingsOf(url: string, file: string, models: readonly Model[] = MODELS): object {
  const upstreams = {
    azure: { provider: 'azure', url },
    vertex: { provider: 'vertex', url, region: 'europe-west1', project: 'acme', credentials_file: file },
    // A proxy's own token takes the place of no credential.
    bedrock: {
      provider: 'bedrock',
      url,
      region: 'eu-west-1',
      headers: { 'x-proxy-token': '${PROXY_TOKEN}' },
    },
  };
  return {
    workers: 2,
    models: models.map((id) => ({
      id,
      price: { input: '1', output: '1' },
      max_output_tokens: 100,
      upstreams: [{ breaker_failures: 0, ...upstreams[id] }],
    })),
    plans: [{ id: 'ample', requests_per_minute: 100_000, calls_per_day: 1_000_000 }],
  };
}

const kindOf = (path: string): string =>
  path.startsWith('/aws') ? 'aws' : path.startsWith('/acme') ? 'entra' : 'google';

/** One token server for all three, by the path. */
const scriptOf =
  (counts: Map<string, number>): TokenScript =>
  (asked) => {
    const kind = kindOf(asked.path);
    const number = (counts.get(kind) ?? 0) + 1;
    counts.set(kind, number);
    if (kind === 'aws') return countedKeys(LIFE_SECONDS)(asked, number);
    const prefix = kind === 'entra' ? 'eyJ-entra-secret-token' : 'ya29.secret-token';
    return countedTokens(LIFE_SECONDS, prefix)(asked, number);
  };

/** `models`: of the first settings; `more`: settings over them. */
async function start(
  t: Test,
  script: (counts: Map<string, number>) => TokenScript,
  models: readonly Model[] = MODELS,
  more: object = {},
) {
  const counts = new Map<string, number>();
  const startedMs = performance.now();
  /** When the last reply of each kind goes out. */
  const repliedMs = new Map<string, number>();
  const inner = script(counts);
  const tokens = await startTokenServer(t, async (asked, number) => {
    const reply = (await inner(asked, number)) as TokenReply;
    repliedMs.set(kindOf(asked.path), performance.now() + (reply.delayMs ?? 0));
    return reply;
  });
  /** If one process renews: none of its credentials is new, and none is due. */
  const isQuiet = (): boolean =>
    [...repliedMs.values()].every((ms) => {
      const ageMs = performance.now() - ms;
      return ageMs > SETTLED_MS && ageMs < RENEWED_MS_MIN - SETTLED_MS;
    });
  const providers = await startProviders(t);
  const folder = temporaryFolder(t);
  const file = writeServiceAccount(folder, `${tokens.url}/google`);
  const env = {
    PROXY_TOKEN: 'token-of-the-proxy',
    AZURE_TENANT_ID: 'acme',
    AZURE_CLIENT_ID: 'app',
    AZURE_CLIENT_SECRET: 'secret-of-the-app',
    AZURE_AUTHORITY_HOST: tokens.url,
    AWS_CONTAINER_CREDENTIALS_FULL_URI: `${tokens.url}/aws`,
    AWS_SHARED_CREDENTIALS_FILE: join(folder, 'none'),
    AWS_CONFIG_FILE: join(folder, 'none'),
  };
  const configOf = (some: readonly Model[]): object => ({
    ...settingsOf(providers.url, file, some),
    ...more,
  });
  const gateway = await startGateway(t, { folder, config: configOf(models), env });
  const { key } = await gateway.admin.customer();
  const call = (model: string, prompt = 'Hello') => gateway.chat(key, prompt, { model });
  const reload = async (some: readonly Model[]): Promise<void> => {
    writeFileSync(join(folder, 'tollgate.yaml'), JSON.stringify(configOf(some)));
    const answer = await gateway.admin.send('POST', '/admin/v1/reload', {});
    if (answer.status !== 200) throw new Error(answer.body);
  };
  /** Checks that each kind was renewed so often as one keeper does it, however long the test has taken. */
  const renewedOnce = (kinds: readonly string[], times: number, what: string, sinceMs = startedMs): void => {
    const most = times + Math.floor((performance.now() - sinceMs) / RENEWED_MS_MIN);
    for (const kind of kinds) {
      const count = counts.get(kind) ?? 0;
      t.ok(count >= times && count <= most, `${what}: ${kind} ${count} times, at most ${most}`);
    }
  };
  return { counts, tokens, providers, gateway, key, call, reload, env, folder, renewedOnce, isQuiet };
}

const KINDS = ['aws', 'entra', 'google'];

interface Credential {
  readonly name: string;
  readonly ok: boolean;
  readonly expires_at: number | null;
  readonly renewals: number;
  readonly last_error: string | null;
}

const credentialsOf = async (gateway: Gateway): Promise<Credential[]> =>
  ((await gateway.admin.send('GET', '/admin/v1/status')).json() as { credentials: Credential[] }).credentials;

const metricsOf = async ({ admin }: Gateway): Promise<string> =>
  (await request({ port: admin.port, path: '/metrics' })).body;

function withoutSecrets(t: Test, what: string, text: string): void {
  for (const secret of [...SECRETS, 'secret-of-the-app'])
    t.notOk(text.includes(secret), `${what} without ${secret}`);
}

/** Calls each of the models until something is so; the statuses that came. */
async function statusesUntil(
  call: (model: Model) => Promise<{ readonly status: number }>,
  models: readonly Model[],
  what: string,
  isSo: () => boolean,
  isQuiet = (): boolean => false,
): Promise<number[]> {
  const statuses = new Set<number>();
  let isOver = false;
  const caller = async (model: Model): Promise<void> => {
    while (!isOver) {
      statuses.add((await call(model)).status);
      await sleep(isQuiet() ? QUIET_PAUSE_MS : CALL_PAUSE_MS);
    }
  };
  const callers = models.flatMap((model) => [caller(model), caller(model)]);
  await eventually(what, () => (isSo() ? true : undefined)).finally(() => (isOver = true));
  await Promise.all(callers);
  return [...statuses];
}

/** Checks that a provider saw newer and newer tokens. */
function inTurn(t: Test, tokens: ReadonlySet<string>): void {
  const numbers = [...tokens].map((token) => Number(/\d+$/.exec(token)?.[0]));
  t.ok(numbers.length > 1, 'the provider sees the new one after the old one');
  t.same(
    numbers,
    [...numbers].sort((a, b) => a - b),
    [...tokens].join(', '),
  );
}

void t.test('renewed once for all threads, while calls run', async (t) => {
  const { counts, providers, gateway, call, env, folder, renewedOnce, isQuiet } = await start(t, scriptOf);
  renewedOnce(KINDS, 1, 'one renewal for two workers');
  const haveNew = (): boolean => Object.values(providers.seen).every(({ size }) => size > 1);
  const statuses = await statusesUntil(call, MODELS, 'new tokens at the providers', haveNew, isQuiet);
  t.same(statuses, [200], 'no call fails over a renewal');
  renewedOnce(KINDS, 1, 'one renewal for two workers, while they call');
  for (const model of MODELS) inTurn(t, providers.seen[model]!);

  const credentials = await credentialsOf(gateway);
  t.same(
    credentials.map(({ name, ok }) => [name.replace(/:.*/, ''), ok]),
    [
      ['entra', true],
      ['google', true],
      ['aws', true],
    ],
  );
  for (const { name, renewals } of credentials) {
    const kind = name.replace(/:.*/, '');
    // One may come meanwhile.
    t.ok(renewals > 1 && renewals <= counts.get(kind)!, `${kind}: ${renewals} of ${counts.get(kind)}`);
  }
  const metrics = await metricsOf(gateway);
  const expiry = /^tollgate_upstream_credential_expiry_timestamp_seconds\{credential="entra"\} (\d+)$/m;
  const expiresAt = (await credentialsOf(gateway))[0]!.expires_at!;
  const shown = Number(expiry.exec(metrics)?.[1]);
  t.ok(shown >= credentials[0]!.expires_at! && shown <= expiresAt, `${shown} is when it expires`);

  // What a provider repeats of a token stays here, and a rejection renews once.
  const before = new Map(counts);
  const beforeMs = performance.now();
  const said = await Promise.all(MODELS.map((model) => call(model, 'wrong')));
  t.same(
    said.map(({ status }) => status),
    [400, 400, 400],
  );
  const rejected = await Promise.all(
    MODELS.flatMap((model) => Array.from({ length: 10 }, () => call(model, 'reject'))),
  );
  t.ok(rejected.every(({ status }) => status === 502));
  await eventually('the early renewals', () =>
    [...before].every(([kind, count]) => counts.get(kind)! > count) ? true : undefined,
  );
  for (const [kind, count] of before)
    renewedOnce([kind], count + 1, 'not renewed for each call', beforeMs - RENEWED_MS_MIN);
  withoutSecrets(t, 'answers', [...said, ...rejected].map(({ body }) => body).join('\n'));
  withoutSecrets(t, 'the log', gateway.log().join('\n'));
  withoutSecrets(t, 'metrics', await metricsOf(gateway));
  withoutSecrets(t, 'the status', JSON.stringify(await credentialsOf(gateway)));

  const test = await runCommand(folder, ['upstreams', 'test'], env);
  t.match(test.stdout, /azure[\s\S]*status 200/, 'upstreams test has credentials of its own');
  withoutSecrets(t, 'upstreams test', test.stdout + test.stderr);
});

void t.test(
  'a token server that fails: the start is bounded, calls get 502, and all is well later',
  async (t) => {
    let isWell = false;
    const failing =
      (counts: Map<string, number>): TokenScript =>
      (asked, number) =>
        isWell
          ? scriptOf(counts)(asked, number)
          : number % 3 === 0
            ? 'reset'
            : number % 3 === 1
              ? { status: 500, body: '<html>oh</html>' }
              : { status: 429, headers: { 'retry-after': '1' }, body: { error: 'slow_down' } };
    const { gateway, call, env, folder } = await start(t, failing);
    for (const model of MODELS) {
      const { status, body } = await call(model);
      t.equal(status, 502, model);
      t.match(body, /provider_unavailable/);
    }
    t.ok((await credentialsOf(gateway)).every(({ ok, last_error: error }) => !ok && error !== null));
    t.match(await metricsOf(gateway), /credential_expiry_timestamp_seconds\{credential="aws"\} 0/);
    const lines = gateway.log().filter((line) => line.includes('could not be had'));
    t.match(lines.join('\n'), /"credential":"entra".*"advice"/);
    const test = await runCommand(folder, ['upstreams', 'test'], env);
    t.match(test.stdout, /no credentials: /);
    isWell = true;
    for (const model of MODELS)
      await eventually(`${model} again`, async () => ((await call(model)).status === 200 ? true : undefined));
    t.ok((await credentialsOf(gateway)).every(({ ok }) => ok));
  },
);

void t.test('a reload adds an upstream with a credential, and takes it away', async (t) => {
  const { counts, gateway, call, reload, renewedOnce, isQuiet } = await start(t, scriptOf, ['azure']);
  const names = async (): Promise<string[]> =>
    (await credentialsOf(gateway)).map(({ name }) => name.replace(/:.*/, '')).sort();
  t.same([...counts.keys()], ['entra'], 'only what the settings name');

  const reloadedMs = performance.now();
  await reload(MODELS);
  const first = await Promise.all(MODELS.map((model) => call(model)));
  t.same(
    first.map(({ status }) => status),
    [200, 200, 200],
    'no call waits in vain',
  );
  renewedOnce(['entra'], 1, 'a reload renews nothing anew');
  renewedOnce(['aws', 'google'], 1, 'once by the reload', reloadedMs);
  t.same(await names(), ['aws', 'entra', 'google']);

  await reload(['azure', 'bedrock']);
  t.match(await call('vertex'), { status: 400, body: /model_not_found|invalid_parameters/ });
  t.same(await names(), ['aws', 'entra']);
  const before = new Map(counts);
  // Both are renewed once more after google was due.
  const areNew = (): boolean => ['aws', 'entra'].every((kind) => counts.get(kind)! > before.get(kind)! + 1);
  t.same(await statusesUntil(call, ['azure', 'bedrock'], 'two renewals', areNew, isQuiet), [200]);
  t.equal(counts.get('google'), before.get('google'), 'what nobody wants is not renewed');

  await reload(MODELS);
  t.equal((await call('vertex')).status, 200, 'and it comes back');
  await eventually('the renewal that was due', () =>
    counts.get('google')! > before.get('google')! ? true : undefined,
  );
});

void t.test('several processes renew each for itself', async (t) => {
  const startedMs = performance.now();
  const { counts, gateway, key } = await start(t, scriptOf, MODELS, { processes: PROCESSES });
  await knownEverywhere(gateway, key);
  const areAll = (count: number): boolean => KINDS.every((kind) => (counts.get(kind) ?? 0) >= count);
  await eventually('both processes', () => (areAll(PROCESSES) ? true : undefined));
  // A connection for each call: the kernel deals them out.
  const call = (model: Model): Promise<{ status: number }> => gateway.chat(key, 'Hello', { model });
  const statuses = await statusesUntil(call, MODELS, 'renewals', () => areAll(2 * PROCESSES));
  t.same(statuses, [200], 'no call fails over a renewal');
  const most = PROCESSES * (1 + Math.floor((performance.now() - startedMs) / RENEWED_MS_MIN));
  t.ok(
    [...counts.values()].every((count) => count <= most),
    `${[...counts.values()].join(', ')}, at most ${most}`,
  );
  t.equal(await gateway.stop(), 0);
});

/** Replies in the place of the usual ones: the life that is claimed, in the words of each server. */
const LIES: Readonly<Record<string, { readonly seconds: unknown; readonly expiration: unknown }>> = {
  'in the past': { seconds: -60, expiration: '2020-01-01T00:00:00Z' },
  'in a hundred years': { seconds: 3_153_600_000, expiration: '2126-01-01T00:00:00Z' },
  'at once': { seconds: 0, expiration: new Date(Date.now() + 1_000).toISOString() },
  // AWS's own package takes no keys without an expiry.
  nowhere: { seconds: undefined, expiration: '2020-01-01T00:00:00Z' },
};

/** In two seconds on an idle machine. */
const LIED_CALLS = 150;

/** As scriptOf, with another life. */
const lyingScriptOf =
  ({ seconds, expiration }: (typeof LIES)[string]) =>
  (counts: Map<string, number>): TokenScript =>
  async (asked, number) => {
    const reply = await scriptOf(counts)(asked, number);
    if (typeof reply === 'string') return {};
    const body = reply.body as Record<string, unknown>;
    const claimed = 'AccessKeyId' in body ? { Expiration: expiration } : { expires_in: seconds };
    return { ...reply, body: { ...body, ...claimed } };
  };

void t.test('a token server that lies about the expiry', async (t) => {
  for (const [name, lie] of Object.entries(LIES)) {
    const { counts, gateway, call } = await start(t, lyingScriptOf(lie));
    let calls = 0;
    const counted = (model: Model): ReturnType<typeof call> => call(model).finally(() => (calls += 1));
    const statuses = await statusesUntil(counted, MODELS, 'some calls', () => calls >= LIED_CALLS);
    t.same(statuses, [200], `${name}: what it gave is used`);
    for (const kind of ['aws', 'entra', 'google'])
      t.ok(counts.get(kind)! <= 2, `${name}: ${kind} is asked ${counts.get(kind)} times, not for each call`);
    const latest = Date.now() / 1_000 + 86_400;
    for (const { name: credential, ok, expires_at: expiresAt } of await credentialsOf(gateway))
      t.ok(ok && (expiresAt ?? 0) <= latest, `${name}: ${credential} expires at ${expiresAt}`);
    t.equal(await gateway.stop(), 0);
  }
});

void t.test('a token server that is slow', async (t) => {
  const slow =
    (counts: Map<string, number>): TokenScript =>
    async (asked, number) => {
      const reply = await scriptOf(counts)(asked, number);
      return typeof reply === 'string' ? {} : { ...reply, delayMs: DELAY_MS };
    };
  const { providers, gateway, call, renewedOnce, isQuiet } = await start(t, slow);
  const haveNew = (): boolean => Object.values(providers.seen).every(({ size }) => size > 1);
  const statuses = await statusesUntil(call, MODELS, 'new tokens', haveNew, isQuiet);
  t.same(statuses, [200], 'the old one serves meanwhile');
  renewedOnce(KINDS, 1, 'and is renewed once');
  t.equal(await gateway.stop(), 0);
});
