/**
 * The mock upstream in another process: those of a test file share one (mock-host.ts), because loading the
 * program takes most of a mock's time. Benches, and the test of the command, have a process for each.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { startChild, type Child } from '../../bench/support/child.js';
import type { MockStats } from '#src/mock/mock-delivery.js';
import { request } from './http.js';
import type { MockOrder, MockStarted } from './mock-host.js';

export interface Mock {
  readonly port: number;
  /** Base URL for a model's `upstreams`, of `provider: openai`. */
  readonly url: string;
  /** The same for other providers. */
  readonly origin: string;
  stats(): Promise<MockStats>;
  resetStats(): Promise<void>;
}

/** A mock in a process of its own. */
export interface MockProcess extends Mock {
  readonly child: Child;
}

/** What a test's scope offers to clean up; tap's `t`. */
export interface Scope {
  teardown(after: () => unknown): unknown;
}

const READY_TIMEOUT_MS = 120_000;

/** Those that wait for a mock, by the id of their order. */
const waiting = new Map<number, (started: MockStarted) => void>();
let orders = 0;
let host: ChildProcess | undefined;

/**
 * Starts a mock with `args` of `tollgate mock-upstream`; ends it with the test. Requests are recorded for
 * `stats().last`.
 */
export async function startMock(t: Scope, args: readonly string[] = []): Promise<Mock> {
  const started = await new Promise<MockStarted>((resolve) => {
    const id = (orders += 1);
    host ??= startHost();
    waiting.set(id, resolve);
    keepFor(host);
    order(host, { id, args });
  });
  if ('error' in started) throw new Error(`mock upstream: ${started.error}`);
  const { port } = started;
  t.teardown(() => host?.connected && order(host, { close: port }));
  return mockAt(port);
}

/** Starts `tollgate mock-upstream --port 0` with `args` in a process of its own; ends it with the test. */
export async function startMockProcess(t: Scope, args: readonly string[] = []): Promise<MockProcess> {
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const child = await startChild({
    name: 'mock upstream',
    args: [main, 'mock-upstream', '--port', '0', '--record', ...args],
    ready: /mock upstream on http:\/\/127\.0\.0\.1:(\d+)\n/,
    readyTimeoutMs: READY_TIMEOUT_MS,
  });
  t.teardown(() => child.signal('SIGKILL'));
  return { ...mockAt(Number(child.ready[1])), child };
}

function mockAt(port: number): Mock {
  return {
    port,
    origin: `http://127.0.0.1:${port}`,
    url: `http://127.0.0.1:${port}/v1`,
    stats: async () => (await request({ port, path: '/mock/stats' })).json() as MockStats,
    resetStats: async () => {
      await request({ port, method: 'POST', path: '/mock/reset-stats' });
    },
  };
}

function startHost(): ChildProcess {
  // As in startChild.
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: undefined };
  const stdio = ['ignore', 'ignore', 'inherit', 'ipc'] as const;
  const host = fork(new URL('mock-host.js', import.meta.url), { env, stdio: [...stdio] });
  host.on('message', (started: MockStarted) => {
    waiting.get(started.id)?.(started);
    waiting.delete(started.id);
    keepFor(host);
  });
  host.once('exit', (code, signal) => {
    for (const [id, resolve] of waiting) resolve({ id, error: `its process has ended: ${code ?? signal}` });
    waiting.clear();
  });
  return host;
}

function order(host: ChildProcess, order: MockOrder): void {
  host.send(order);
}

/** This process stays for the host's sake while somebody waits for a mock. */
function keepFor(host: ChildProcess): void {
  const how = waiting.size > 0 ? 'ref' : 'unref';
  host[how]();
  host.channel?.[how]();
}

/** A prompt that steers the mock: `steered('status=429', 'Hello')`. */
export const steered = (query: string, text = 'Hello'): string => `x-mock: ${query}\n${text}`;
