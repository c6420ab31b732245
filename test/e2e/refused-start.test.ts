/**
 * What must stop the start: said in words on standard error, exit code 1, and nothing left running.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { SETTINGS_PROCESS_VARIABLE } from '#src/cli/runtime-support.js';
import { startGateway, temporaryFolder } from '../support/gateway.js';
import { mountDisk, reasonToSkip } from '../support/small-disk.js';

const ROOT = process.cwd();
const END_TIMEOUT_MS = 120_000;

/** Runs `tollgate serve` until it ends by itself. */
async function serve(folder: string, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const child = spawn(process.execPath, [join(ROOT, 'dist/cli/main.js'), 'serve', ...args], {
    cwd: folder,
    env: { ...process.env, TOLLGATE_ADMIN_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), END_TIMEOUT_MS);
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'exit') as Promise<[number | null]>,
  ]);
  clearTimeout(timer);
  return { stdout, stderr, code };
}

void t.test('a port that somebody uses', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const folder = temporaryFolder(t);
  const { stdout, stderr, code } = await serve(folder, ['--port', String(port)]);
  t.equal(code, 1);
  t.match(stderr, `Cannot listen on 127.0.0.1:${port} (EADDRINUSE)`);
  t.match(stderr, 'TOLLGATE_PORT');
  t.equal(stdout, '');

  const admin = await serve(folder, ['--port', '0', '--admin-port', String(port)]);
  t.equal(admin.code, 1);
  t.match(admin.stderr, `Cannot listen on 127.0.0.1:${port} (EADDRINUSE)`);
  t.match(admin.stderr, 'admin.port (TOLLGATE_ADMIN_HOST, TOLLGATE_ADMIN_PORT)', 'the setting of this port');
  t.notMatch(admin.stderr, 'listen.port', 'and not that of the other');

  const served = await startGateway(t, { folder });
  t.match(
    served.child.stdout(),
    /Demo key, shown only once:\n\n {2}sk-/,
    'the first start that served shows it',
  );
  t.equal(await served.stop(), 0);
});

void t.test('a data folder that another gateway serves from', async (t) => {
  const first = await startGateway(t);
  const { stderr, code } = await serve(first.folder, ['--port', '0']);
  t.equal(code, 1);
  t.match(stderr, `Another gateway (process ${first.pid()}) works on`);
  t.equal(await first.stop(), 0);
});

void t.test('a disk that is full before the data folder is made', { skip: reasonToSkip() }, async (t) => {
  // Each has room for another part of what a start writes.
  for (const size of ['4k', '44k', '60k', '80k', '100k']) {
    const folder = mountDisk(t, size);
    const { stderr, code } = await serve(temporaryFolder(t), ['--port', '0', '--data', folder]);
    t.equal(code, 1, size);
    const said = stderr.split('\n').filter((line) => line !== '' && !line.startsWith('{'));
    t.match(
      said,
      [new RegExp(`disk of ${folder} does not take the 256 KiB`)],
      'folder and wanted space are named',
    );
    t.strictSame(readdirSync(folder), [], 'nothing is left behind');
  }
});

void t.test('a file system that holds no files', { skip: !existsSync('/proc/self') }, async (t) => {
  for (const folder of ['/proc/nowhere', '/proc/nowhere/data', '/proc/self']) {
    const { stderr, code } = await serve(temporaryFolder(t), ['--port', '0', '--data', folder]);
    t.equal(code, 1, folder);
    t.match(stderr, new RegExp(`${folder}.*cannot be (created|opened): .*disk.*map`));
  }
});

void t.test('a wrong file', async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'tollgate.yaml'), 'models: []\nlisten: { prot: 1 }\n');
  const { stderr, code } = await serve(folder, []);
  t.equal(code, 1);
  t.match(stderr, 'tollgate.yaml:1: models: got an empty list, want a list of at least one model');
  t.match(stderr, 'tollgate.yaml:2: listen.prot: unknown setting, the nearest known one is listen.port');
});

/**
 * Loaded into every thread: listener 0 dies whenever it listens, and listener 1 does not say that it does. So
 * the start is not over when the gateway gives up.
 */
const DYING_LISTENER = `
import { isMainThread, parentPort, workerData } from 'node:worker_threads';
if (!isMainThread && typeof workerData?.slots === 'object') {
  const post = parentPort.postMessage.bind(parentPort);
  parentPort.postMessage = (message, transfer) => {
    const listens = message.kind === 'listening';
    if (!listens || workerData.index === 0) post(message, transfer);
    if (listens && workerData.index === 0) setTimeout(() => { throw new Error('listener 0 dies'); }, 50);
  };
}`;

void t.test('a gateway that gives up while it starts for the first time says why', async (t) => {
  const folder = temporaryFolder(t);
  const preload = join(folder, 'dying-listener.mjs');
  writeFileSync(preload, DYING_LISTENER);
  const file = [
    'models: [{ id: m, upstreams: [{ url: "echo:" }] }]',
    'plans: [{ id: p, requests_per_minute: 1, calls_per_day: 1 }]',
    'listen: { listeners: 2 }',
  ];
  writeFileSync(join(folder, 'tollgate.yaml'), file.join('\n'));
  const env = { NODE_OPTIONS: `--import=${preload}` };
  const { stdout, stderr, code } = await serve(folder, ['--port', '0'], env);
  t.equal(code, 1);
  t.equal(stdout, '');
  t.match(stderr, /^the gateway gave up while it started: listeners died 6 times within a minute$/m);
});

void t.test('a process that is killed while it reads the settings', async (t) => {
  const folder = temporaryFolder(t);
  const preload = join(folder, 'killed.mjs');
  writeFileSync(
    preload,
    `if (process.env.${SETTINGS_PROCESS_VARIABLE}) process.kill(process.pid, 'SIGKILL');`,
  );
  const { stderr, code } = await serve(folder, [], { NODE_OPTIONS: `--import=${preload}` });
  t.equal(code, 1);
  t.match(stderr, /^the settings could not be read: the process that reads them ended \(SIGKILL\)$/m);
});
