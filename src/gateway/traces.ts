/**
 * The traces of a gateway: reads from the environment whether spans are exported, starts the thread that
 * exports them, and connects listeners and workers with it. Without OTEL_EXPORTER_OTLP_ENDPOINT there is no
 * such thread, and nothing of OpenTelemetry is loaded. gateway.ts owns it, on the main thread.
 */
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { MessageChannel, Worker } from 'node:worker_threads';
import type { AccountIndex } from '../core/units.js';
import { packageVersion } from '../core/version.js';
import type { ListenerTracing } from '../request/messages.js';
import { threadMemory } from './thread-pool.js';
import type { Log } from '../telemetry/log.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { FromSpanExport, SpanExportInit, ToSpanExport } from '../telemetry/span-record.js';
import { createSpanBudget, SpanBudget, type SpanCounts, type SpanOutlet } from '../telemetry/span-outbox.js';
import { samplingOf, type Sampling } from '../telemetry/trace-context.js';

/** How long the export of the last spans may delay the end of the gateway. */
const CLOSE_MS = 3_000;

export interface TracesOptions {
  readonly env: NodeJS.ProcessEnv;
  /** Returns null if the id cannot be read. */
  readonly accountIdOf: (account: AccountIndex) => string | null;
  readonly metrics: MetricsBuffers;
  /** The stripe of the exporting thread in the metrics. */
  readonly thread: number;
  readonly log: Log;
}

/**
 * Starts the export. Returns undefined if no spans are exported. Throws if the endpoint is not an address.
 */
export function tracesOf(env: NodeJS.ProcessEnv, options: Omit<TracesOptions, 'env'>): Traces | undefined {
  return wantsTraces(env) ? new Traces({ ...options, env }) : undefined;
}

function wantsTraces(env: NodeJS.ProcessEnv): boolean {
  if (env.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return false;
  if (!['', 'otlp'].includes(env.OTEL_TRACES_EXPORTER ?? '')) return false;
  for (const name of ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT']) {
    const text = env[name]?.trim() ?? '';
    if (text === '') continue;
    const protocol = URL.canParse(text) ? new URL(text).protocol : '';
    if (protocol === 'http:' || protocol === 'https:') return true;
    throw new Error(`${name} must be an http or https address such as http://127.0.0.1:4318, got ${text}`);
  }
  return false;
}

export class Traces {
  readonly #sampling: Sampling;
  readonly #buffer = createSpanBudget();
  readonly #budget = new SpanBudget(this.#buffer);
  readonly #accountIdOf: TracesOptions['accountIdOf'];
  readonly #thread: Worker;
  #closing = false;

  /** Starts the thread, with the V8 flags of this moment. */
  constructor({ env, accountIdOf, metrics, thread, log }: TracesOptions) {
    const { sampling, problem } = samplingOf(env);
    if (problem !== undefined) log.warn(problem);
    const protocol = env.OTEL_EXPORTER_OTLP_TRACES_PROTOCOL ?? env.OTEL_EXPORTER_OTLP_PROTOCOL ?? '';
    if (!['', 'http/json'].includes(protocol))
      log.warn('spans are exported as http/json, which the OTLP/HTTP port of a collector takes', {
        protocol,
      });
    this.#sampling = sampling;
    this.#accountIdOf = accountIdOf;
    const init: SpanExportInit = { budget: this.#buffer, version: packageVersion(), metrics, thread };
    this.#thread = new Worker(new URL('../telemetry/span-export.thread.js', import.meta.url), {
      workerData: init,
      name: 'traces',
      resourceLimits: threadMemory(),
    });
    this.#thread.on('message', ({ accounts }: FromSpanExport) => this.#sendIds(accounts));
    this.#thread.on('error', (error) =>
      log.error('the thread that exports spans failed; spans are dropped until the gateway is started anew', {
        error: error.stack,
      }),
    );
    this.#thread.unref();
  }

  /** Returns what a new listener needs. Its port must be in the transfer list. */
  newListenerTracing(): ListenerTracing {
    return { sampling: this.#sampling, outlet: this.newOutlet() };
  }

  /** Returns what a new upstream worker needs. Its port must be in the transfer list. */
  newOutlet(): SpanOutlet {
    const { port1, port2 } = new MessageChannel();
    this.#tell({ kind: 'source', port: port1 }, [port1]);
    return { port: port2, budget: this.#buffer };
  }

  counts(): SpanCounts {
    return this.#budget.counts();
  }

  /** To be called when listeners and workers have ended. Exports their last spans, for CLOSE_MS at most. */
  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    const exit = once(this.#thread, 'exit');
    this.#tell({ kind: 'close' });
    await Promise.race([exit, delay(CLOSE_MS)]);
    await this.#thread.terminate();
  }

  #sendIds(accounts: readonly AccountIndex[]): void {
    this.#tell({ kind: 'ids', ids: accounts.map((account) => [account, this.#accountIdOf(account)]) });
  }

  #tell(message: ToSpanExport, transfer: readonly MessageChannel['port1'][] = []): void {
    this.#thread.postMessage(message, transfer);
  }
}
