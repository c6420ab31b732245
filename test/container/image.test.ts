/**
 * The image: built from the Dockerfile, and run as a cluster runs it. Takes minutes and root, so it is not
 * part of `npm test`: `npm run test:container`.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { within } from '../../bench/support/child.js';
import { TEST_MODEL, eventually, testSettings } from '../support/gateway.js';
import { request, type Answer } from '../support/http.js';
import { startMock, steered } from '../support/mock.js';
import { chunksOf, eventData, isWholeText, openStream, readRest, textOf } from '../support/sse.js';
import { makeVolume, startContainer, type Container } from './image-container.js';
import { buildImage, type BuiltImage } from './image-store.js';

/** Node's own image has some 220 MB. */
const IMAGE_BYTES_MAX = 255e6;
/**
 * Modules, program and licences: what this project adds to Node's own image. Some 2.5 MB are what finds and
 * renews credentials of Google and AWS.
 */
const OWN_BYTES_MAX = 34e6;
/**
 * Of CPU, by all of the container: 0.7 s were seen on a busy machine. Told; bounded against something that
 * hangs.
 */
const READY_CPU_MS_MAX = 3_000;
const DRAIN_TIMEOUT_MS = 20_000;
/** For an end that hangs. */
const END_TIMEOUT_MS = 120_000;
const USER = 65_532;

/** Of package-lock.json. The package at the path '' is this one. */
interface Lock {
  readonly packages: Readonly<
    Record<string, { readonly dev?: boolean; readonly dependencies?: Readonly<Record<string, string>> }>
  >;
}

const bytesOf = (...paths: string[]): number =>
  execFileSync('du', ['--summarize', '--bytes', '--one-file-system', ...paths], { encoding: 'utf8' })
    .trim()
    .split('\n')
    .reduce((sum, line) => sum + Number.parseInt(line, 10), 0);

const settingsOf = (mockUrl: string): object =>
  testSettings(mockUrl, { drain_timeout_ms: DRAIN_TIMEOUT_MS, flush_interval_ms: 60_000 });

const call = (container: Container, key: string, prompt: string): Promise<Answer> =>
  request({
    port: container.port,
    path: '/v1/chat/completions',
    headers: { authorization: `Bearer ${key}` },
    body: { model: TEST_MODEL, messages: [{ role: 'user', content: prompt }] },
  });

const readiness = async (container: Container): Promise<number> =>
  (await request({ port: container.adminPort, path: '/readyz' })).status;

async function done(container: Container, ...args: string[]): Promise<Record<string, string>> {
  const { code, stdout, stderr } = await container.exec(['tollgate', ...args, '--json']);
  if (code !== 0) throw new Error(`tollgate ${args.join(' ')}: ${stderr}`);
  return JSON.parse(stdout) as Record<string, string>;
}

async function stop(container: Container): Promise<void> {
  container.signal('SIGTERM');
  t.same(await within(container.exit, END_TIMEOUT_MS, 'the end after SIGTERM'), { code: 0, signal: null });
}

/** The file of the kernel on a process of the container, by its number outside. */
const kernelFile = (pid: number, file: string): string => readFileSync(`/proc/${pid}/${file}`, 'utf8');

/** Process 1 and what it started. */
function processesOf(container: Container): number[] {
  const children = kernelFile(container.pid, `task/${container.pid}/children`).trim().split(/\s+/);
  return [container.pid, ...children.map(Number)];
}

/** Memory that would be free without the process; what it shares counts by its share. */
const memoryBytesOf = (pid: number): number =>
  Number(/^Pss: +(\d+) kB$/m.exec(kernelFile(pid, 'smaps_rollup'))![1]) * 1_024;

/** User and system time of all of its threads; the kernel counts hundredths of a second. */
function cpuMsOf(pid: number): number {
  const fields = kernelFile(pid, 'stat').split(') ')[1]!.split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

void t.test('the image', { timeout: 1_200_000 }, async (t) => {
  const startedMs = performance.now();
  const image: BuiltImage = await buildImage(t);
  t.comment(`built in ${Math.round((performance.now() - startedMs) / 1_000)} s`);
  const { config, root } = image;

  await t.test('what it says of itself', (t) => {
    const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
    t.match(config, {
      User: `${USER}:${USER}`,
      Entrypoint: ['tollgate'],
      Cmd: ['serve'],
      WorkingDir: '/etc/tollgate',
      Volumes: { '/var/lib/tollgate': {} },
      ExposedPorts: { '8080/tcp': {}, '8081/tcp': {} },
      Healthcheck: { Test: ['CMD', 'tollgate', 'health'] },
      Labels: {
        'org.opencontainers.image.title': 'Tollgate',
        'org.opencontainers.image.version': version,
        'org.opencontainers.image.licenses': 'MIT',
      },
    });
    t.end();
  });

  await t.test('what is in it', (t) => {
    const own = bytesOf(join(root, 'opt/tollgate'), join(root, 'usr/share/tollgate'));
    const whole = bytesOf(root);
    t.comment(
      `${(whole / 1e6).toFixed(1)} MB, of which Tollgate and its packages ${(own / 1e6).toFixed(1)} MB`,
    );
    t.ok(whole <= IMAGE_BYTES_MAX, `${whole} bytes`);
    t.ok(own <= OWN_BYTES_MAX, `${own} bytes of its own`);

    const modules = join(root, 'opt/tollgate/node_modules');
    const files = readdirSync(modules, { recursive: true, encoding: 'utf8' });
    const natives = files.filter((path) => path.endsWith('.node')).map((path) => path.split('/')[0]);
    t.same(natives.sort(), ['@lmdb', '@msgpackr-extract', 'uWebSockets.js'], 'one native binary a package');
    // By the lock, which knows of each package whether anything but development wants it.
    const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as Lock;
    const forDevelopment = Object.keys(packages).filter((path) => packages[path]!.dev === true);
    t.ok(forDevelopment.includes('node_modules/tap'), `${forDevelopment.length} are for development`);
    t.same(
      forDevelopment.filter((path) => existsSync(join(root, 'opt/tollgate', path, 'package.json'))),
      [],
      'none of which is there',
    );
    const bill = JSON.parse(readFileSync(join(root, 'usr/share/tollgate/sbom.cdx.json'), 'utf8')) as {
      readonly bomFormat: string;
      readonly components: readonly { readonly name: string; readonly licenses?: readonly object[] }[];
    };
    t.equal(bill.bomFormat, 'CycloneDX');
    const listed = bill.components.map(({ name }) => name);
    for (const name of Object.keys(packages['']!.dependencies!))
      t.ok(listed.includes(name), `${name} is listed`);
    t.ok(
      bill.components.every(({ licenses }) => (licenses?.length ?? 0) > 0),
      'each with its licence',
    );
    const uws = bill.components.find(({ name }) => /^uwebsockets/i.test(name));
    t.same(uws?.licenses, [{ license: { id: 'Apache-2.0' } }], 'as its licence file has it');
    t.equal(statSync(join(root, 'var/lib/tollgate')).uid, USER, 'the volume is its user’s');
    t.end();
  });

  await t.test('without a file: the echo model, and nothing written outside of the volume', async (t) => {
    const container = await startContainer(t, image, {});
    const processes = processesOf(container);
    const cpuMs = processes.reduce((sum, pid) => sum + cpuMsOf(pid), 0);
    t.comment(`ready after ${Math.round(container.readyMs)} ms, with ${cpuMs} ms of CPU`);
    t.ok(cpuMs > 0 && cpuMs <= READY_CPU_MS_MAX, `${cpuMs} ms of CPU`);
    const [supervisorMb, gatewayMb] = processes.map((pid) => Math.round(memoryBytesOf(pid) / 1e6));
    t.comment(`at rest: gateway ${gatewayMb!} MB, supervisor ${supervisorMb!} MB`);

    t.match(container.output(), /\n {2}sk-[\w-]{43}\n/, 'a key to try it with');
    t.match(kernelFile(container.pid, 'mountinfo'), / \/ ro[, ]/, 'the root is read-only');
    t.equal(processes.length, 2, 'supervisor and gateway');
    for (const pid of processes) {
      const status = kernelFile(pid, 'status');
      t.match(status, new RegExp(`^Uid:\t${USER}\t${USER}\t${USER}\t${USER}$`, 'm'));
      t.match(status, /^CapEff:\t0+$/m, 'no capabilities');
    }
    await stop(container);
  });

  await t.test('with a file: calls, commands, health, and an end that loses nothing', async (t) => {
    const mock = await startMock(t);
    const volume = makeVolume(t, image);
    const settings = settingsOf(mock.url);
    const container = await startContainer(t, image, { settings, volume });
    t.equal(await readiness(container), 200);
    const health = config.Healthcheck.Test.slice(1);
    t.match(await container.exec(health), { code: 0, stdout: 'ready\n' });

    await done(container, 'accounts', 'create', 'acme', '--plan', 'ample', '--credit', '10.00');
    const { key } = await done(container, 'keys', 'create', '--account', 'acme', '--name', 'test');
    const whole = await call(container, key!, steered('chunks=3'));
    t.equal(whole.status, 200);
    t.match(whole.json(), { object: 'chat.completion', usage: { total_tokens: Number } });
    // The counter thread loads a tokenizer, whose tables must have stayed in the image.
    t.equal((await call(container, key!, steered('chunks=3&usage=missing'))).status, 200);

    const { incoming } = await openStream(container.port, key!, {
      model: TEST_MODEL,
      messages: [{ role: 'user', content: steered('chunks=40&chunk_ms=50') }],
      stream: true,
    });
    const rest = readRest(incoming);
    container.signal('SIGTERM');
    t.equal(
      await eventually('readyz to fail', async () => {
        const status = await readiness(container);
        return status === 200 ? undefined : status;
      }),
      503,
    );
    t.match(await container.exec(health), { code: 1, stderr: /starts or drains/ });
    const body = await rest;
    t.ok(isWholeText(textOf(chunksOf(body)), 40), 'the stream in flight ends whole');
    t.equal(eventData(body).at(-1), '[DONE]');
    t.same(await within(container.exit, END_TIMEOUT_MS, 'the end'), { code: 0, signal: null });

    const again = await startContainer(t, image, { settings, volume });
    t.equal((await call(again, key!, 'Hello')).status, 200, 'the books are in the volume');
    const account = await done(again, 'accounts', 'show', 'acme');
    t.match(account, { calls_today: 4, held: '0.00' });
    await stop(again);
    t.notMatch(again.output(), /"level":"error"/);
  });

  await t.test('a wrong file: the reason, and an exit status', async (t) => {
    await t.rejects(startContainer(t, image, { settings: { modles: [] } }), { message: /modles/ });
  });
});
