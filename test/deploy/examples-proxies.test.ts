/**
 * nginx and Caddy in front, by the files of examples/ with nothing changed in them but addresses and
 * certificates.
 */
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startBed } from '../support/bed.js';
import { TEST_MODEL, eventually, temporaryFolder } from '../support/gateway.js';
import { steered } from '../support/mock.js';
import { freePort } from '../support/free-port.js';
import { selfSigned, type Certificate } from '../fixtures/upstream-certificate.js';

const LARGE_BYTES = 2 * 1024 * 1024;
/** Above what the example of nginx lets through, and what the gateway does. */
const TOO_LARGE_BYTES = 12 * 1024 * 1024;
const CHUNKS = 4;
/**
 * Some 2 KB in 3 s, less than a proxy's buffer: one that buffers shows nothing before the mock is through
 * with it.
 */
const SLOW_STREAM = 'chunks=10&chunk_ms=300';
const SLOW_START = 'first_byte_ms=20000';

const certificate = selfSigned();

interface Place {
  readonly folder: string;
  readonly port: number;
  readonly gatewayPort: number;
  readonly certificateFile: string;
  readonly keyFile: string;
}

interface Proxy {
  readonly name: string;
  readonly isThere: boolean;
  /** Writes its settings, and gives the arguments that it is started with in the foreground. */
  readonly prepare: (place: Place) => readonly string[];
}

/** `text` with each address of the example replaced; throws for one that is not there. */
function readdressed(text: string, replacements: Readonly<Record<string, string>>): string {
  return Object.entries(replacements).reduce((changed, [from, to]) => {
    if (!changed.includes(from)) throw new Error(`the example has no ${from}`);
    return changed.replaceAll(from, to);
  }, text);
}

const PROXIES: readonly Proxy[] = [
  {
    name: 'nginx',
    isThere: spawnSync('nginx', ['-v']).status === 0,
    prepare: ({ folder, port, gatewayPort, certificateFile, keyFile }) => {
      const server = readdressed(readFileSync('examples/nginx/tollgate.conf', 'utf8'), {
        'server 127.0.0.1:8080;': `server 127.0.0.1:${gatewayPort};`,
        'listen 443 ssl;': `listen 127.0.0.1:${port} ssl;`,
        '/etc/ssl/gateway.example.com/fullchain.pem': certificateFile,
        '/etc/ssl/gateway.example.com/privkey.pem': keyFile,
      });
      const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
        .map((name) => `${name}_temp_path ${folder}/${name};`)
        .join(' ');
      const file = join(folder, 'nginx.conf');
      writeFileSync(
        file,
        `daemon off; master_process off; pid ${folder}/nginx.pid; error_log ${folder}/error.log;\n` +
          `events {}\nhttp { access_log off; ${paths}\n${server}}\n`,
      );
      return ['-c', file, '-p', folder, '-e', `${folder}/error.log`];
    },
  },
  {
    name: 'caddy',
    isThere: spawnSync('caddy', ['version']).status === 0,
    prepare: ({ folder, port, gatewayPort, certificateFile, keyFile }) => {
      const site = readdressed(readFileSync('examples/caddy/Caddyfile', 'utf8'), {
        'gateway.example.com {': `https://127.0.0.1:${port} {\n\ttls ${certificateFile} ${keyFile}`,
        '127.0.0.1:8080': `127.0.0.1:${gatewayPort}`,
      });
      const file = join(folder, 'Caddyfile');
      // Neither an admin port nor port 80 of this machine.
      writeFileSync(file, `{\n\tadmin off\n\tauto_https disable_redirects\n}\n${site}`);
      return ['run', '--config', file, '--adapter', 'caddyfile'];
    },
  },
];

interface Call {
  readonly port: number;
  readonly key: string;
  readonly prompt: string;
  readonly stream?: boolean;
  readonly signal?: AbortSignal;
}

/** Resolves with the head of the response. */
function call({ port, key, prompt, stream = false, signal }: Call): Promise<IncomingMessage> {
  const body = JSON.stringify({
    model: TEST_MODEL,
    messages: [{ role: 'user', content: prompt }],
    stream,
  });
  return new Promise((resolve, reject) => {
    const outgoing = httpsRequest({
      host: '127.0.0.1',
      port,
      method: 'POST',
      path: '/v1/chat/completions',
      ca: certificate!.certificate,
      agent: false,
      ...(signal === undefined ? {} : { signal }),
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    });
    outgoing.on('response', resolve).on('error', reject);
    outgoing.end(body);
  });
}

async function read(incoming: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece as Buffer);
  return Buffer.concat(pieces).toString();
}

async function start(t: Test, proxy: Proxy, { certificate: chain, key }: Certificate) {
  const bed = await startBed(t, {}, { mockArgs: ['--chunks', String(CHUNKS)] });
  const folder = temporaryFolder(t);
  const [certificateFile, keyFile] = [join(folder, 'fullchain.pem'), join(folder, 'privkey.pem')];
  writeFileSync(certificateFile, chain);
  writeFileSync(keyFile, key, { mode: 0o600 });
  const port = await freePort();
  const gatewayPort = bed.gateway.port;
  const args = proxy.prepare({ folder, port, gatewayPort, certificateFile, keyFile });
  let log = '';
  const child = spawn(proxy.name, args, { env: { PATH: process.env.PATH, HOME: folder }, cwd: folder });
  child.stderr.on('data', (piece: Buffer) => (log += piece.toString()));
  t.teardown(() => child.kill('SIGKILL'));
  const { key: callerKey } = await bed.gateway.admin.customer({ credit: '1000.00' });
  await eventually(`an answer through ${proxy.name}`, async () => {
    if (child.exitCode !== null) throw new Error(`${proxy.name} has ended: ${log}`);
    const incoming = await call({ port, key: callerKey, prompt: 'Hello' }).catch(() => undefined);
    if (incoming === undefined) return undefined;
    await read(incoming);
    return incoming.statusCode === 200 ? true : undefined;
  });
  await bed.mock.resetStats();
  return { ...bed, port, key: callerKey };
}

for (const proxy of PROXIES) {
  const missing =
    certificate === undefined ? 'openssl is not installed' : `no ${proxy.name}: test/setup-tools.sh examples`;
  const options = proxy.isThere && certificate !== undefined ? {} : { skip: missing };
  void t.test(proxy.name, options, async (t) => {
    const { mock, port, key } = await start(t, proxy, certificate!);

    await t.test('a whole response, with its headers', async (t) => {
      const incoming = await call({ port, key, prompt: 'Hello' });
      t.equal(incoming.statusCode, 200);
      t.match(incoming.headers, { 'x-request-id': /./, 'x-ratelimit-limit': /^\d+$/ });
      t.match(JSON.parse(await read(incoming)), { object: 'chat.completion' });
    });

    await t.test('a long body, and a refusal in our words', async (t) => {
      const large = await call({ port, key, prompt: 'x'.repeat(LARGE_BYTES) });
      t.equal(large.statusCode, 200, await read(large));
      const refused = await call({ port, key: 'sk-none', prompt: 'Hello' });
      t.equal(refused.statusCode, 401);
      t.match(JSON.parse(await read(refused)), { error: { code: 'invalid_api_key' } });
    });

    await t.test('a body that is too long for the proxy is refused in our form', async (t) => {
      const refused = await call({ port, key, prompt: 'x'.repeat(TOO_LARGE_BYTES) });
      t.equal(refused.statusCode, 413);
      t.match(refused.headers['content-type'], /^application\/json/);
      t.match(JSON.parse(await read(refused)), {
        error: { message: /./, type: 'invalid_request_error', code: 'request_too_large' },
      });
    });

    await t.test('a stream comes as it is made, and ends when its reader leaves', async (t) => {
      await mock.resetStats();
      const incoming = await call({ port, key, prompt: steered(SLOW_STREAM), stream: true });
      t.match(incoming.headers['content-type'] ?? '', /^text\/event-stream/);
      const [first] = (await incoming[Symbol.asyncIterator]().next()).value as [number];
      t.ok(first > 0, 'something came');
      t.match(await mock.stats(), { open: 1, aborted: 0 }, 'while the provider still sends');
      incoming.destroy();
      await eventually('the provider call is aborted', async () => {
        const { open, aborted } = await mock.stats();
        return open === 0 && aborted === 1 ? true : undefined;
      });
    });

    await t.test('a caller that leaves before its response ends the call', async (t) => {
      await mock.resetStats();
      const leaver = new AbortController();
      const left = call({ port, key, prompt: steered(SLOW_START), signal: leaver.signal });
      await eventually('the call at the provider', async () =>
        (await mock.stats()).open === 1 ? true : undefined,
      );
      leaver.abort();
      await t.rejects(left, { name: 'AbortError' });
      await eventually('the provider call is aborted', async () =>
        (await mock.stats()).aborted === 1 ? true : undefined,
      );
    });

    await t.test('a call that fails is not made again', async (t) => {
      await mock.resetStats();
      const incoming = await call({ port, key, prompt: steered('status=400') });
      t.equal(incoming.statusCode, 400, await read(incoming));
      t.equal((await mock.stats()).requests, 1);
    });
  });
}
