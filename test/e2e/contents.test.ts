/** Contents of calls: which are kept, which never are, how long they may be, who reads them. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { ContentsView } from '#src/admin/call-routes.js';
import { runCommand } from '../support/command.js';
import { eventually, startGateway, testSettings, TEST_MODEL, type Gateway } from '../support/gateway.js';
import { type Answer, request } from '../support/http.js';
import { startMock, steered } from '../support/mock.js';

const idOf = ({ headers }: Answer): string => String(headers['x-request-id']);

const ROOT = '/admin/v1';
/** Less than half of the second after which a batch goes to the disk. */
const SOON_MS = 400;
/** On a busy machine some calls are found later. */
const TRIES_MAX = 60;

const contentsOf = async ({ admin }: Gateway, answer: Answer): Promise<ContentsView | undefined> => {
  const path = `${ROOT}/calls/${idOf(answer)}`;
  // Contents are on disk a second after the end, as the record is.
  await eventually('the record', async () =>
    (await admin.send('GET', path)).status === 200 ? true : undefined,
  );
  const found = await admin.send('GET', `${path}/contents`);
  return found.status === 200 ? (found.json() as ContentsView) : undefined;
};

const keptOf = (gateway: Gateway, answer: Answer): Promise<ContentsView> =>
  eventually(`contents of ${idOf(answer)}`, () => contentsOf(gateway, answer));

async function start(
  t: Test,
  callLog: object,
  more: Parameters<typeof testSettings>[1] = {},
  env: Record<string, string> = {},
) {
  const mock = await startMock(t);
  const settings = { ...more, call_log: callLog };
  const gateway = await startGateway(t, { config: testSettings(mock.url, settings), env });
  const customer = await gateway.admin.customer({ credit: '10.00' });
  const reload = async (log: object): Promise<void> => {
    writeFileSync(
      join(gateway.folder, 'tollgate.yaml'),
      JSON.stringify(testSettings(mock.url, { ...more, call_log: log })),
    );
    const answer = await gateway.admin.send('POST', `${ROOT}/reload`, {});
    if (answer.status !== 200) throw new Error(answer.body);
  };
  return { gateway, customer, reload };
}

void t.test('a call is found at once, and a key that its provider echoes is not', async (t) => {
  const secret = 'sk-their-secret-0123456789';
  const { gateway, customer } = await start(
    t,
    { contents: 'all' },
    { upstream: { key: '${PROVIDER_KEY}' } },
    { PROVIDER_KEY: secret },
  );
  const waitsMs: number[] = [];
  while (!(Math.min(...waitsMs) < SOON_MS) && waitsMs.length < TRIES_MAX) {
    const answer = await gateway.chat(customer.key, `Is ${secret} your key?`);
    t.equal(answer.status, 200);
    const sentMs = performance.now();
    await eventually('the record', async () =>
      (await gateway.admin.send('GET', `${ROOT}/calls/${idOf(answer)}`)).status === 200 ? true : undefined,
    );
    waitsMs.push(performance.now() - sentMs);
    const { request } = await keptOf(gateway, answer);
    t.match(request.text, /Is \*+ your key/);
  }
  // The thread that served it may still be writing it down.
  t.ok(Math.min(...waitsMs) < SOON_MS, `found after ${waitsMs.join()} ms`);
  t.equal(await gateway.stop(), 0);
  for (const name of readdirSync(join(gateway.dataFolder, 'contents')))
    t.notOk(readFileSync(join(gateway.dataFolder, 'contents', name)).includes(secret));
});

void t.test('secrets of the gateway, of operators and of a webhook are unreadable on the disk', async (t) => {
  const env = {
    OIDC_SECRET: 'secret/of&the=client',
    WEBHOOK_SECRET: `whsec_${Buffer.from('24 random bytes and more!').toString('base64')}`,
    HEADER_SECRET: 'secret-of-a-header',
    AZURE_CLIENT_SECRET: 'secret~of~an~azure~client',
  };
  const { gateway, customer } = await start(
    t,
    { contents: 'all' },
    {
      upstream: { headers: { 'x-own': 'Bearer ${HEADER_SECRET}' } },
      notify: { url: 'http://127.0.0.1:9/', secret: '${WEBHOOK_SECRET}' },
      admin: {
        port: 0,
        oidc: {
          issuer: 'http://localhost:9',
          client_id: 'tollgate',
          client_secret: '${OIDC_SECRET}',
          redirect_url: 'http://localhost:9/admin/session/oidc/callback',
          default_role: 'viewer',
        },
      },
    },
    env,
  );
  const made = await gateway.admin.send('POST', `${ROOT}/operators`, { name: 'ann', role: 'viewer' });
  const { token } = made.json() as { token: string };
  const adminToken = readFileSync(join(gateway.dataFolder, 'admin-token'), 'utf8').trim();
  const secrets = [...Object.values(env), adminToken, env.WEBHOOK_SECRET.slice('whsec_'.length), token];
  const spellings = secrets.flatMap((secret) => [
    secret,
    JSON.stringify({ secret }),
    encodeURIComponent(secret),
    Buffer.from(`somebody:${secret}`).toString('base64'),
  ]);
  await keptOf(gateway, await gateway.chat(customer.key, `before ${spellings.join(' ')} after`));
  t.equal(await gateway.stop(), 0);
  const folder = join(gateway.dataFolder, 'contents');
  const files = Buffer.concat(readdirSync(folder).map((name) => readFileSync(join(folder, name))));
  t.ok(files.includes('before') && files.includes('after'));
  for (const secret of secrets)
    for (const form of [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)])
      t.notOk(files.includes(form), form);
  for (const [run] of files.toString('latin1').matchAll(/[\w+/]{12,}/g))
    for (const secret of secrets)
      t.notOk(Buffer.from(run, 'base64').includes(secret.slice(0, -2)), `${secret} in ${run}`);
});

void t.test('by default nothing is kept', async (t) => {
  const { gateway, customer } = await start(t, {});
  const answer = await gateway.chat(customer.key, 'Hello');
  t.equal(await contentsOf(gateway, answer), undefined);
  t.notOk(existsSync(join(gateway.dataFolder, 'contents')));
});

void t.test('all calls: whole, streamed, failed, refused, replayed, large, long', async (t) => {
  const { gateway, customer } = await start(
    t,
    { contents: 'all', contents_body_bytes: 8_192 },
    { cache: { ttl_seconds: 60 }, limits: { parse_inline_bytes: 4_096 } },
  );
  const { key } = customer;
  const sent = (prompt: string, more: object = {}): string =>
    JSON.stringify({ model: TEST_MODEL, messages: [{ role: 'user', content: prompt }], ...more });
  const same = async (what: string, answer: Answer, request: string): Promise<void> => {
    const kept = await keptOf(gateway, answer);
    t.same(
      kept.request,
      { text: request, bytes: Buffer.byteLength(request), cut: false },
      `${what}: request`,
    );
    const bytes = Buffer.byteLength(answer.body);
    t.same(kept.response, { text: answer.body, bytes, cut: false }, `${what}: response`);
    t.equal(kept.request_id, idOf(answer));
  };
  const whole = await gateway.chat(key, 'Hello ä€😀');
  t.equal(whole.status, 200);
  await same('whole', whole, sent('Hello ä€😀'));
  const hit = await gateway.chat(key, 'Hello ä€😀');
  t.equal(hit.headers['x-tollgate-cache'], 'hit');
  await same('hit', hit, sent('Hello ä€😀'));
  const streamed = await gateway.chat(key, 'A stream', { stream: true });
  t.match(streamed.body, /\[DONE\]/);
  await same('streamed', streamed, sent('A stream', { stream: true }));
  const failed = await gateway.chat(key, steered('status=500'));
  t.equal(failed.status, 502);
  await same('failed', failed, sent(steered('status=500')));
  const wrong = await gateway.request(key, { body: '{"model": 7}' });
  t.equal(wrong.status, 400);
  await same('refused', wrong, '{"model": 7}');

  const long = 'ä'.repeat(30_000);
  const large = await gateway.chat(key, steered('prompt_tokens=1&chunks=400&bytes=40000', long));
  t.equal(large.status, 200);
  const kept = await keptOf(gateway, large);
  t.ok(kept.request.cut && kept.response.cut);
  t.equal(
    kept.request.bytes,
    Buffer.byteLength(sent(steered('prompt_tokens=1&chunks=400&bytes=40000', long))),
  );
  t.equal(kept.response.bytes, Buffer.byteLength(large.body));
  t.ok(Buffer.byteLength(kept.request.text) > 8_188 && Buffer.byteLength(kept.request.text) <= 8_192);
  t.ok(large.body.startsWith(kept.response.text));
  t.notOk(kept.request.text.includes('\ufffd'), 'no half of a character');
});

void t.test('errors alone; never of a private key, an unknown one, or after it was turned off', async (t) => {
  const { gateway, customer, reload } = await start(t, { contents: 'errors' });
  const { admin } = gateway;
  const { key, keyId } = customer;
  const fail = (prompt: string, by = key): Promise<Answer> => gateway.chat(by, steered('status=500', prompt));
  const good = await gateway.chat(key, 'went well');
  const bad = await fail('went wrong');
  t.ok(await keptOf(gateway, bad));
  t.equal(await contentsOf(gateway, good), undefined);

  // The answer of a call that ended after: what was to be kept of the others is there by then.
  const gone = async (what: string, answer: Answer): Promise<void> => {
    await keptOf(gateway, await fail('later'));
    t.equal(await contentsOf(gateway, answer), undefined, what);
  };
  const made = await admin.send('POST', `${ROOT}/keys`, {
    account: customer.accountId,
    name: 'quiet',
    private: true,
  });
  const quiet = made.json() as { id: string; key: string; private: boolean };
  t.equal(quiet.private, true);
  await gone('a private key', await fail('secret of a private key', quiet.key));
  const rotated = (await admin.send('POST', `${ROOT}/keys/${quiet.id}/rotate`, {})).json() as typeof quiet;
  t.equal(rotated.private, true, 'its successor is private too');
  await gone('its successor', await fail('secret of a private key', rotated.key));
  const unknown = await gateway.chat(`sk-${'x'.repeat(43)}`, 'secret of nobody');
  t.equal(unknown.status, 401);
  await gone('an unknown key', unknown);

  const slow = gateway.chat(key, steered('status=500&first_byte_ms=4000', 'secret in flight'));
  await eventually('the call in flight', async () =>
    (await admin.account(customer.accountId)).calls_in_flight === 1 ? true : undefined,
  );
  t.equal((await admin.send('POST', `${ROOT}/keys/${keyId}/set-private`, { private: true })).status, 200);
  const later = await fail('secret that was made private', key);
  const inFlight = await slow;
  t.equal((await admin.send('POST', `${ROOT}/keys/${keyId}/set-private`, { private: false })).status, 200);
  await gone('a call that was in flight then', inFlight);
  await gone('a key that is private by now', later);
  const { data } = (await admin.send('GET', `${ROOT}/changes?limit=50`)).json() as {
    data: readonly {
      action: string;
      changes: readonly { field: string; before: unknown; after: unknown }[];
    }[];
  };
  const change = data.filter(({ action }) => action === 'keys.set-private').map(({ changes }) => changes);
  t.same(change.reverse(), [
    [{ field: 'private', before: false, after: true }],
    [{ field: 'private', before: true, after: false }],
  ]);

  await reload({ contents: 'none' });
  const off = await fail('secret after it was turned off');
  await reload({ contents: 'errors' });
  await gone('turned off', off);
  await reload({ contents: 'errors', enabled: false });
  t.equal((await fail('secret without records')).status, 502);
  t.equal(await gateway.stop(), 0);

  const folder = join(gateway.dataFolder, 'contents');
  const files = Buffer.concat(readdirSync(folder).map((name) => readFileSync(join(folder, name))));
  t.ok(files.includes('went wrong'));
  for (const text of ['went well', 'secret', key, quiet.key]) t.notOk(files.includes(text), text);
});

void t.test('who reads them: an admin, and the log says so, whatever its level', async (t) => {
  const { gateway, customer } = await start(t, { contents: 'all' }, { log: { level: 'error' } });
  const { admin } = gateway;
  const answer = await gateway.chat(customer.key, `a key in a message: ${customer.key}`);
  await keptOf(gateway, answer);
  const path = `${ROOT}/calls/${idOf(answer)}/contents`;
  for (const role of ['viewer', 'support', 'finance', 'admin']) {
    const made = await admin.send('POST', `${ROOT}/operators`, { name: role, role });
    const { token } = made.json() as { token: string };
    const asked = await request({ port: admin.port, path, headers: { authorization: `Bearer ${token}` } });
    t.equal(asked.status, role === 'admin' ? 200 : 403, role);
    if (role === 'admin') t.notOk(asked.body.includes(customer.key.slice(3)), 'no key of a caller');
  }
  const isLook = (line: string): boolean =>
    ['an operator read the contents of a call', '"who":"admin"', idOf(answer)].every((part) =>
      line.includes(part),
    );
  t.ok(await eventually('the line of the log', () => gateway.log().some(isLook) || undefined));
  const changes = gateway.log().filter((line) => line.includes('an operator changed something'));
  t.ok(changes.some((line) => line.includes('"action":"operators.create"')));
  t.equal((await admin.send('GET', `${ROOT}/calls/req_nothing-1/contents`)).status, 404);

  const shown = await runCommand(gateway.folder, ['calls', 'show', idOf(answer), '--contents']);
  t.match(shown.stdout, /request, \d+ bytes:\n\{"model":/);
  t.equal(await gateway.stop(), 0);
  const alone = await runCommand(gateway.folder, ['calls', 'show', idOf(answer), '--contents', '--json']);
  t.match(alone.json(), { request_id: idOf(answer), contents: { response: { text: answer.body } } });
});
