/**
 * The mock upstream as a child process, as the command line starts it.
 */
import { startChild, type Child } from '../../bench/support/child.js';
import type { MockStats } from '#src/mock/mock-delivery.js';
import { request } from './http.js';

export interface Mock {
  readonly port: number;
  /** Base URL for a model's `upstreams`, of `provider: openai`. */
  readonly url: string;
  /** The same for other providers. */
  readonly origin: string;
  readonly child: Child;
  stats(): Promise<MockStats>;
  resetStats(): Promise<void>;
}

/** What a test's scope offers to clean up; tap's `t`. */
export interface Scope {
  teardown(after: () => unknown): unknown;
}

const READY_TIMEOUT_MS = 120_000;

/**
 * Starts `tollgate mock-upstream --port 0` with `args`; ends it with the test. Requests are recorded for
 * `stats().last`.
 */
export async function startMock(t: Scope, args: readonly string[] = []): Promise<Mock> {
  const main = new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const child = await startChild({
    name: 'mock upstream',
    args: [main, 'mock-upstream', '--port', '0', '--record', ...args],
    ready: /mock upstream on http:\/\/127\.0\.0\.1:(\d+)\n/,
    readyTimeoutMs: READY_TIMEOUT_MS,
  });
  t.teardown(() => child.signal('SIGKILL'));
  const port = Number(child.ready[1]);
  return {
    port,
    origin: `http://127.0.0.1:${port}`,
    url: `http://127.0.0.1:${port}/v1`,
    child,
    stats: async () => (await request({ port, path: '/mock/stats' })).json() as MockStats,
    resetStats: async () => {
      await request({ port, method: 'POST', path: '/mock/reset-stats' });
    },
  };
}

/** A prompt that steers the mock: `steered('status=429', 'Hello')`. */
export const steered = (query: string, text = 'Hello'): string => `x-mock: ${query}\n${text}`;
