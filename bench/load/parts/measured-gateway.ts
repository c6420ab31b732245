/**
 * One gateway of several that run at once and of which one at a time is under load: what its calls cost in
 * CPU time.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { startGateway, testSettings, TEST_MODEL, type Gateway } from '../../../test/support/gateway.js';
import { scrape } from '../../../test/support/metrics.js';
import type { Scope } from '../../../test/support/mock.js';
import { processTree, threadsCpuNanos } from '../../support/proc.js';
import { copyBuildWithout } from './build-without.js';
import { ClosedLoop } from './closed-loop.js';
import type { Shape, Variant } from './variants.js';

export interface MeasuredOptions {
  readonly name: string;
  /** Of the build. */
  readonly folder: string;
  readonly variant: Variant;
  readonly shape: Shape;
  readonly connections: number;
  readonly upstreamUrl: string;
  readonly collectorUrl: string;
}

/**
 * Of one slice under load. What is measured is a second, as the books are written once a second; in the lead,
 * which is not, connections are opened and what is done behind the calls comes into its stride.
 */
export interface SlicePace {
  readonly leadMs: number;
  readonly windowMs: number;
  readonly windows: number;
  /** A window with fewer tells nothing: the machine was elsewhere. */
  readonly answersMin: number;
}

const NANOS_PER_MICRO = 1_000;

interface Moment {
  readonly nanos: number;
  readonly answers: number;
}

const UNKNOWN_KEY = `sk-${'0'.repeat(48)}`;
const TIGHT_PLAN = { id: 'one', requests_per_minute: 1, calls_per_day: 1_000 };
/** None is ever reached. */
const QUOTAS = {
  tokens_per_minute: 1_000_000_000,
  tokens_per_day: 1_000_000_000_000,
  tokens_per_month: 1_000_000_000_000,
  spend_per_month: '1000000.00',
};
const QUOTAS_PLAN = { id: 'quotas', requests_per_minute: 1_000_000, calls_per_day: 1_000_000_000, ...QUOTAS };

export async function startMeasured(scope: Scope, options: MeasuredOptions): Promise<MeasuredGateway> {
  const { variant, upstreamUrl, collectorUrl } = options;
  const gateway = await startGateway(scope, {
    config: testSettings(upstreamUrl, {
      ...(options.shape.embeds !== undefined && { model: { serves: ['chat', 'embeddings'] } }),
      upstream: {
        ...(variant.provider && { provider: variant.provider }),
        ...(variant.provider && variant.aws === undefined && { key: '${PROVIDER_KEY}' }),
        ...variant.upstream,
      },
      plans: variant.hasQuotas ? [TIGHT_PLAN, QUOTAS_PLAN] : [TIGHT_PLAN],
      ...variant.settings,
    }),
    env: {
      PROVIDER_KEY: 'sk-provider-key-of-the-bench',
      ...variant.aws,
      ...(variant.traces && { ...variant.traces, OTEL_EXPORTER_OTLP_ENDPOINT: collectorUrl }),
    },
    main: join(buildOf(scope, options), 'dist/cli/main.js'),
  });
  const { status = 200 } = options.shape;
  const { key } = await gateway.admin.customer({
    credit: '1000000.00',
    ...(status === 429 && { plan: TIGHT_PLAN.id }),
    ...(variant.hasQuotas && (await quotasOf(gateway))),
  });
  // The one call of this minute. One of each further minute is served too, among thousands.
  if (status === 429) await gateway.chat(key, 'one');
  const request = requestText(status === 401 ? UNKNOWN_KEY : key, options);
  const load = new ClosedLoop(gateway.port, request, options.connections, status);
  const measured = new MeasuredGateway(options, gateway, load);
  await measured.checkParts();
  return measured;
}

/** The options of a customer who has quotas at every scope. */
async function quotasOf({ admin }: Gateway): Promise<object> {
  const made = await admin.send('POST', '/admin/v1/groups', { name: 'bench', ...QUOTAS });
  if (made.status !== 200) throw new Error(`no group was made: ${made.status} ${made.body}`);
  return { plan: QUOTAS_PLAN.id, group: 'bench', limits: QUOTAS };
}

function buildOf(scope: Scope, { variant: { without }, folder }: MeasuredOptions): string {
  if (without === undefined) return folder;
  const parent = mkdtempSync(join(tmpdir(), 'tollgate-bench-'));
  scope.teardown(() => rmSync(parent, { recursive: true, force: true }));
  const copy = join(parent, 'build');
  copyBuildWithout(without, folder, copy);
  return copy;
}

function requestText(key: string, { variant, shape }: MeasuredOptions): string {
  const { promptChars, stream, embeds } = shape;
  const text = 'x'.repeat(promptChars);
  const body = JSON.stringify(
    embeds === undefined
      ? {
          model: TEST_MODEL,
          stream,
          messages: [{ role: 'user', content: text }],
          ...(variant.isMessages && { max_tokens: 1_000 }),
        }
      : {
          model: TEST_MODEL,
          input: Array.from({ length: embeds }, () => text),
          dimensions: 1_536,
          encoding_format: 'base64',
        },
  );
  const chatPath = variant.isMessages ? '/v1/messages' : '/v1/chat/completions';
  const path = embeds === undefined ? chatPath : '/v1/embeddings';
  const headers = {
    host: '127.0.0.1',
    authorization: `Bearer ${key}`,
    'content-type': 'application/json',
    'content-length': String(body.length),
    ...variant.headers,
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  return `POST ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
}

export class MeasuredGateway {
  readonly name: string;
  /** CPU µs a call, of each slice and of each window. */
  readonly slices: number[] = [];
  readonly windows: number[] = [];
  readonly #variant: Variant;
  readonly #gateway: Gateway;
  readonly #load: ClosedLoop;
  readonly #pids: readonly number[];

  constructor({ name, variant }: MeasuredOptions, gateway: Gateway, load: ClosedLoop) {
    this.name = name;
    this.#variant = variant;
    this.#gateway = gateway;
    this.#load = load;
    this.#pids = processTree(gateway.child.pid);
  }

  /** Rejects where a part that is to do nothing does something, or the other way round. */
  async checkParts(): Promise<void> {
    const { without = [], name } = this.#variant;
    const { key } = await this.#gateway.admin.customer({ plan: TIGHT_PLAN.id });
    await this.#gateway.chat(key, 'one');
    const { status } = await this.#gateway.chat(key, 'two');
    if ((status === 200) !== without.includes('limits'))
      throw new Error(`${name}: the second call of a minute with one was answered with ${status}`);
    const counted = (await scrape(this.#gateway.admin.port)).sum('tollgate_requests_total');
    if ((counted === 0) !== without.includes('metrics'))
      throw new Error(`${name}: the metrics count ${counted} requests`);
  }

  async warmUp(ms: number): Promise<void> {
    this.#load.start();
    await sleep(ms);
    await this.#load.stop();
  }

  async slice({ leadMs, windowMs, windows, answersMin }: SlicePace): Promise<void> {
    this.#load.start();
    await sleep(leadMs);
    const begin = this.#now();
    let before = begin;
    for (let window = 0; window < windows; window++) {
      await sleep(windowMs);
      const now = this.#now();
      if (now.answers - before.answers >= answersMin) this.windows.push(microsACall(before, now));
      before = now;
    }
    this.slices.push(microsACall(begin, before));
    await this.#load.stop();
  }

  #now(): Moment {
    return { nanos: threadsCpuNanos(this.#pids), answers: this.#load.answers };
  }
}

function microsACall(from: Moment, to: Moment): number {
  return (to.nanos - from.nanos) / NANOS_PER_MICRO / (to.answers - from.answers);
}
