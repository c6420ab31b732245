/**
 * HTTPS for callers: a real client, a certificate that is changed while calls go on, and what speaks no TLS.
 */
import { spawnSync } from 'node:child_process';
import { createPrivateKey } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { Agent, request as httpsRequest } from 'node:https';
import { connect as connectPlain } from 'node:net';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import OpenAI from 'openai';
import t from 'tap';
import { Agent as UndiciAgent, fetch as undiciFetch } from 'undici';
import { selfSigned, type Certificate } from '../fixtures/upstream-certificate.js';
import {
  TEST_MODEL,
  eventually,
  startGateway,
  temporaryFolder,
  testSettings,
  type Gateway,
} from '../support/gateway.js';
import { startMock, steered, type Scope } from '../support/mock.js';

const made = [selfSigned(), selfSigned(), selfSigned()];
const skip = made.includes(undefined) ? 'openssl is not installed' : false;
const [first, second, third] = made as [Certificate, Certificate, Certificate];
/** A port that speaks only TLS lets a plain caller go at once; this is for a loaded machine. */
const GONE_MS = 10_000;

/** The certificate that a new connection is shown. */
async function shown(gateway: Gateway): Promise<string> {
  const socket: TLSSocket = connect({ host: '127.0.0.1', port: gateway.port, rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const { raw } = socket.getPeerCertificate();
  socket.destroy();
  return `-----BEGIN CERTIFICATE-----\n${raw.toString('base64').replace(/.{64}(?=.)/g, '$&\n')}\n-----END CERTIFICATE-----\n`;
}

/** A chat call over `agent`, the status and text of its response. */
function chat(gateway: Gateway, key: string, agent: Agent, prompt: string, stream = false) {
  return new Promise<{ status: number | undefined; text: string }>((resolve, reject) => {
    const outgoing = httpsRequest(
      {
        agent,
        host: '127.0.0.1',
        port: gateway.port,
        method: 'POST',
        path: '/v1/chat/completions',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      },
      (incoming) => {
        let text = '';
        incoming.setEncoding('utf8').on('data', (piece: string) => (text += piece));
        incoming.once('error', reject);
        incoming.once('end', () => resolve({ status: incoming.statusCode, text }));
      },
    );
    outgoing.once('error', reject);
    outgoing.end(
      JSON.stringify({ model: TEST_MODEL, stream, messages: [{ role: 'user', content: prompt }] }),
    );
  });
}

interface Bed {
  readonly gateway: Gateway;
  readonly key: string;
  readonly write: (certificate: Certificate) => void;
  readonly settings: ReturnType<typeof testSettings> & { readonly listen: object };
  /** Writes the file of settings. */
  readonly configure: (settings: object) => void;
}

async function startTlsBed(t: Scope, more: object = {}, listen: object = {}): Promise<Bed> {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const write = ({ certificate, key }: Certificate): void => {
    writeFileSync(join(folder, 'cert.pem'), certificate);
    writeFileSync(join(folder, 'key.pem'), key);
  };
  write(first);
  const settings = {
    ...testSettings(mock.url, { ...more }),
    listen: { listeners: 2, tls: { cert_file: 'cert.pem', key_file: 'key.pem', ...listen } },
  };
  const gateway = await startGateway(t, {
    folder,
    config: settings,
    env: { PHRASE: 'open sesame' },
  });
  const { key } = await gateway.admin.customer();
  const configure = (changed: object): void =>
    writeFileSync(join(folder, 'tollgate.yaml'), JSON.stringify(changed));
  return { gateway, key, write, settings, configure };
}

let bed: Promise<Bed> | undefined;
/** One that three tests share; the last of them, after which its files are no good, ends it. */
const sharedBed = (): Promise<Bed> => (bed ??= startTlsBed(t));

void t.test('the openai package over https', { skip }, async (t) => {
  const { gateway, key } = await sharedBed();
  t.match(gateway.child.stdout(), /Serving +https:/);
  const dispatcher = new UndiciAgent({ connect: { ca: first.certificate } });
  t.teardown(() => dispatcher.close());
  const client = new OpenAI({
    apiKey: key,
    baseURL: `https://127.0.0.1:${gateway.port}/v1`,
    maxRetries: 0,
    fetch: undiciFetch as unknown as typeof fetch,
    fetchOptions: { dispatcher } as object,
  });
  const body = { model: TEST_MODEL, messages: [{ role: 'user' as const, content: 'Hello' }] };
  const whole = await client.chat.completions.create(body);
  t.ok(whole.choices[0]?.message.content);
  let text = '';
  for await (const chunk of await client.chat.completions.create({ ...body, stream: true }))
    text += chunk.choices[0]?.delta.content ?? '';
  t.equal(text, whole.choices[0]?.message.content);

  const plain = connectPlain(gateway.port, '127.0.0.1');
  plain.setTimeout(GONE_MS, () => plain.destroy(new Error('hung')));
  let answer = '';
  plain.on('data', (piece) => (answer += String(piece)));
  plain.once('error', (error) => t.notMatch(error.message, 'hung'));
  plain.write('GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n');
  await once(plain, 'close');
  t.notMatch(answer, /HTTP\/1\.1 200/, 'plain HTTP is not served');
  const old = connect({
    host: '127.0.0.1',
    port: gateway.port,
    rejectUnauthorized: false,
    minVersion: 'TLSv1',
    maxVersion: 'TLSv1.1',
    ciphers: 'DEFAULT@SECLEVEL=0',
  });
  await t.rejects(once(old, 'secureConnect'), 'nor is TLS 1.1');
  t.equal((await client.chat.completions.create(body)).object, 'chat.completion', 'it goes on');
});

void t.test('what was recorded is not read with the key: no key exchange by RSA', { skip }, async (t) => {
  const mock = await startMock(t);
  const folder = temporaryFolder(t);
  const rsa = selfSigned('rsa')!;
  writeFileSync(join(folder, 'cert.pem'), rsa.certificate);
  writeFileSync(join(folder, 'key.pem'), rsa.key);
  const listen = { tls: { cert_file: 'cert.pem', key_file: 'key.pem' } };
  const gateway = await startGateway(t, { folder, config: testSettings(mock.url, { listen }) });
  const cipherOf = async (ciphers: string): Promise<string | undefined> => {
    const socket = connect({
      host: '127.0.0.1',
      port: gateway.port,
      rejectUnauthorized: false,
      maxVersion: 'TLSv1.2',
      ciphers: `${ciphers}:@SECLEVEL=0`,
    });
    try {
      await once(socket, 'secureConnect');
      return socket.getCipher().name;
    } catch {
      return undefined;
    } finally {
      socket.destroy();
    }
  };
  for (const cipher of ['ECDHE-RSA-AES128-GCM-SHA256', 'ECDHE-RSA-AES256-GCM-SHA384'])
    t.equal(await cipherOf(cipher), cipher, 'with forward secrecy');
  for (const cipher of [
    'AES128-SHA',
    'AES256-SHA',
    'AES128-SHA256',
    'AES128-GCM-SHA256',
    'AES256-GCM-SHA384',
    'kRSA',
  ])
    t.equal(await cipherOf(cipher), undefined, cipher);
});

void t.test('the playground follows a reload to TLS and back', { skip }, async (t) => {
  const { gateway, key, settings, configure } = await sharedBed();
  const played = async (scheme: string): Promise<void> => {
    const path = '/admin/playground';
    t.match((await gateway.admin.send('GET', path)).json(), { base_url: new RegExp(`^${scheme}://`) });
    const request = { model: TEST_MODEL, messages: [{ role: 'user', content: 'hello' }] };
    t.equal((await gateway.admin.send('POST', path, { key, request })).status, 200, scheme);
  };
  await played('https');
  for (const [scheme, listen] of [
    ['http', { listeners: 2 }],
    ['https', settings.listen],
  ] as const) {
    configure({ ...settings, listen });
    const reloaded = await gateway.admin.send('POST', '/admin/v1/reload', {});
    t.same(reloaded.json(), { dry_run: false, applied: ['listen.tls'], restart_needed: [] });
    await played(scheme);
  }
});

void t.test(
  'a changed certificate: new connections see it, those that there are go on',
  { skip },
  async (t) => {
    const { gateway, key, write } = await sharedBed();
    const agent = new Agent({ keepAlive: true, maxSockets: 1, ca: first.certificate });
    t.teardown(() => agent.destroy());
    t.equal((await chat(gateway, key, agent, 'hello')).status, 200);
    const streaming = new Agent({ ca: first.certificate });
    const stream = chat(gateway, key, streaming, steered('chunks=20&chunk_ms=100'), true);
    const reload = (): Promise<{ json(): unknown }> => gateway.admin.send('POST', '/admin/v1/reload', {});

    write(second);
    t.same((await reload()).json(), { dry_run: false, applied: ['listen.tls'], restart_needed: [] });
    for (let at = 0; at < 8; at++) t.equal(await shown(gateway), second.certificate);
    t.match((await stream).text, /data: \[DONE\]\n\n$/, 'a stream that had begun is whole');
    const kept = await chat(gateway, key, agent, 'hello');
    t.equal(
      kept.status,
      200,
      'a kept connection serves, though its client trusts the first certificate alone',
    );
    await t.rejects(
      chat(gateway, key, new Agent({ ca: first.certificate }), 'hello'),
      'as a new one would not',
    );
    const next = new Agent({ ca: second.certificate });
    t.equal((await chat(gateway, key, next, 'hello')).status, 200);

    write({ certificate: third.certificate, key: second.key });
    const refused = (await reload()) as { status?: number; json(): unknown };
    t.equal(refused.status, 400);
    t.match(JSON.stringify(refused.json()), /key\.pem: is not the key of the certificate in .*cert\.pem/);
    t.equal(await shown(gateway), second.certificate, 'the one before stays');
    t.equal(await gateway.stop(), 0);
  },
);

void t.test('files are watched; the key may have a passphrase', { skip }, async (t) => {
  const { gateway, write } = await startTlsBed(t, { watch: true }, { passphrase: '${PHRASE}' });
  t.equal(await shown(gateway), first.certificate);
  const encrypted = createPrivateKey(third.key).export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase: 'open sesame',
  }) as string;
  write({ certificate: third.certificate, key: encrypted });
  await eventually('the new certificate', async () =>
    (await shown(gateway)) === third.certificate ? true : undefined,
  );
  t.equal(await gateway.stop(), 0);
});

void t.test('a certificate that is no good stops the start', (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'cert.pem'), 'nothing');
  writeFileSync(join(folder, 'key.pem'), 'nothing');
  const settings = testSettings('echo:', { listen: { tls: { cert_file: 'cert.pem', key_file: 'key.pem' } } });
  writeFileSync(join(folder, 'tollgate.yaml'), JSON.stringify(settings));
  const program = new URL('../../../dist/cli/main.js', import.meta.url).pathname;
  const args = [program, 'serve', '--port', '0', '--admin-port', '0'];
  const end = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
  t.equal(end.status, 1);
  t.match(end.stderr, /listen\.tls\.cert_file: .*cert\.pem: holds no certificate/);
  t.end();
});
