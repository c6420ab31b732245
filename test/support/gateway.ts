/**
 * A real gateway for tests: `tollgate serve` as a child process with its own data folder and free ports.
 */
import { mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startChild, type Child } from '../../bench/support/child.js';
import { AdminClient } from './admin-client.js';
import { request, type Answer, type RequestOptions } from './http.js';
import type { Scope } from './mock.js';

export interface GatewayOptions {
  /** Text of tollgate.yaml, or settings over the test's own ports and data folder; absent: no file at all. */
  readonly config?: string | object | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** The command's module, where another build is to be run. */
  readonly main?: string | undefined;
  /** A command line that starts the one after it. */
  readonly launcher?: readonly string[] | undefined;
  /** More arguments of `serve`. */
  readonly args?: readonly string[] | undefined;
  /** Folder to run in, with the data in `data` under it; made and removed by default. */
  readonly folder?: string | undefined;
}

const READY_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 120_000;
/** Of waits for something that the gateway does by itself soon. */
const SOON_TIMEOUT_MS = 120_000;
/**
 * Between two tries. Later a tenth of what was waited so far, because most tries ask a gateway: e2e/reload
 * makes 156, and 393 if each comes after 20 ms.
 */
const POLL_MS_MIN = 20;
const POLL_MS_MAX = 100;

/**
 * Calls `probe` until it gives something; an exception counts as nothing. Rejects, naming `what`, after
 * `timeoutMs`.
 */
export async function eventually<T>(
  what: string,
  probe: () => T | undefined | Promise<T | undefined>,
  timeoutMs = SOON_TIMEOUT_MS,
): Promise<T> {
  const startedMs = performance.now();
  let last: unknown = 'nothing came';
  for (;;) {
    try {
      const value = await probe();
      if (value !== undefined) return value;
    } catch (error) {
      last = error;
    }
    const waitedMs = performance.now() - startedMs;
    if (waitedMs > timeoutMs) throw new Error(`waited ${timeoutMs} ms for ${what}`, { cause: last });
    await sleep(Math.min(Math.max(POLL_MS_MIN, waitedMs / 10), POLL_MS_MAX));
  }
}

export function temporaryFolder(t: Scope): string {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
  // A process that is being killed may still write there.
  t.teardown(() => rmSync(folder, { recursive: true, force: true, maxRetries: 10 }));
  return folder;
}

interface GatewayFile {
  readonly pid: number;
  readonly adminHost: string;
  readonly adminPort: number;
}

export class Gateway {
  /** The supervisor. */
  readonly child: Child;
  readonly folder: string;
  readonly dataFolder: string;
  readonly port: number;
  readonly admin: AdminClient;

  constructor(child: Child, folder: string, admin: AdminClient) {
    this.child = child;
    this.folder = folder;
    this.dataFolder = join(folder, 'data');
    this.port = Number(child.ready[1]);
    this.admin = admin;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Process of the gateway that serves now; throws while there is none. */
  pid(): number {
    return gatewayFile(this.dataFolder).pid;
  }

  /** Lines of the log. */
  log(): string[] {
    return this.child.stderr().split('\n').filter(Boolean);
  }

  /** A request with a key; `path` is a chat call's by default. */
  request(
    key: string,
    options: Omit<RequestOptions, 'port' | 'path'> & { readonly path?: string },
  ): Promise<Answer> {
    return request({
      path: '/v1/chat/completions',
      ...options,
      port: this.port,
      headers: { authorization: `Bearer ${key}`, ...options.headers },
    });
  }

  /** A chat call of one user message; `more` are further fields of the body. */
  chat(key: string, prompt: string, more: object = {}): Promise<Answer> {
    return this.request(key, {
      body: { model: TEST_MODEL, messages: [{ role: 'user', content: prompt }], ...more },
    });
  }

  /** SIGTERM, and the exit status that follows. */
  async stop(): Promise<number | null> {
    return (await this.child.stop('SIGTERM', STOP_TIMEOUT_MS)).code;
  }
}

/**
 * Ends the gateway process that serves from `folder`, if one does: the number in a stale file may be
 * another's by now.
 */
function killGatewayOf(folder: string): void {
  try {
    const { pid } = gatewayFile(join(folder, 'data'));
    if (readlinkSync(`/proc/${pid}/cwd`) === folder) process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended, and removed its file or left it.
  }
}

function gatewayFile(dataFolder: string): GatewayFile {
  return JSON.parse(readFileSync(join(dataFolder, 'gateway.json'), 'utf8')) as GatewayFile;
}

/**
 * New connections that the kernel deals out to all processes of a gateway, but for once in some 100,000 times
 * with four.
 */
const DEALT_OUT = 40;

/** Resolves when every process of a gateway knows a key, and so what was made before it. */
export const knownEverywhere = (gateway: Gateway, key: string): Promise<true> =>
  eventually('the key in all processes', async () => {
    const answers = await Promise.all(
      Array.from({ length: DEALT_OUT }, () => gateway.request(key, { method: 'GET', path: '/v1/models' })),
    );
    return answers.every(({ status }) => status === 200) ? true : undefined;
  });

export const TEST_MODEL = 'mock-model';
/** A model that the plan `narrow` may not use. */
export const HIDDEN_MODEL = 'hidden-model';

/** Per million tokens; one token costs 10^6 times as many pico-units. */
export const TEST_PRICE = { input: '1.5', output: '2.25', cached_input: '0.75' };

/** Settings that e2e/workers.test.ts gives all gateways, as JSON. */
const { TOLLGATE_TEST_WORKERS } = process.env;

/**
 * Settings with two models at the mock and the plan `ample` (a million requests a minute, 10^9 calls a day);
 * `more` are further settings, `plans` further plans.
 */
export function testSettings(
  upstreamUrl: string,
  {
    plans = [],
    upstream = {},
    model: settings = {},
    ...more
  }: { plans?: readonly object[]; upstream?: object; model?: object; [setting: string]: unknown } = {},
): object {
  const model = {
    owned_by: 'mock',
    price: TEST_PRICE,
    max_output_tokens: 1_000,
    upstreams: [{ url: upstreamUrl, ...upstream }],
    ...settings,
  };
  return {
    models: [
      { id: TEST_MODEL, ...model },
      { id: HIDDEN_MODEL, ...model },
    ],
    plans: [{ id: 'ample', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000 }, ...plans],
    ...(JSON.parse(TOLLGATE_TEST_WORKERS ?? '{}') as object),
    ...more,
  };
}

/**
 * Starts a gateway and resolves when it serves; it is killed with the test, if it has not been stopped
 * before.
 */
export async function startGateway(t: Scope, options: GatewayOptions = {}): Promise<Gateway> {
  const folder = options.folder ?? temporaryFolder(t);
  const main = options.main ?? new URL(import.meta.resolve('#src/cli/main.js')).pathname;
  const args = [main, 'serve', ...(options.args ?? [])];
  if (options.config !== undefined) {
    const file = join(folder, 'tollgate.yaml');
    // JSON is YAML.
    writeFileSync(file, typeof options.config === 'string' ? options.config : JSON.stringify(options.config));
    args.push('--config', file);
  }
  const child = await startChild({
    name: 'gateway',
    args,
    launcher: options.launcher,
    cwd: folder,
    env: {
      TOLLGATE_CONFIG: undefined,
      TOLLGATE_ADMIN_TOKEN: undefined,
      TOLLGATE_PORT: '0',
      TOLLGATE_ADMIN_PORT: '0',
      TOLLGATE_DATA: join(folder, 'data'),
      ...options.env,
    },
    ready: /Serving +https?:\/\/127\.0\.0\.1:(\d+)\/v1/,
    readyTimeoutMs: READY_TIMEOUT_MS,
  });
  // The gateway notices the end of its supervisor by itself; a test that failed is not to wait for that.
  t.teardown(() => {
    child.signal('SIGKILL');
    killGatewayOf(folder);
  });
  const { adminPort } = await eventually('gateway.json', () => gatewayFile(join(folder, 'data')));
  const token = readFileSync(join(folder, 'data', 'admin-token'), 'utf8').trim();
  return new Gateway(child, folder, new AdminClient(adminPort, token));
}
