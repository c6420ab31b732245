/**
 * The export to an OpenTelemetry collector: of spans, and of ended calls as log records. This file reads from
 * the environment which of them are exported, starts the exporting thread (telemetry/span-export.thread.ts,
 * which reads the endpoint), and connects listeners and workers with it by outlets. Without an endpoint there
 * is no exporting thread, and no OpenTelemetry package is loaded. gateway-start.ts starts a Traces and
 * gateway.ts closes it, on the main thread of a gateway process.
 *
 * Must hold: a collector that fails or hangs delays no call and no start, and the end by at most
 * CLOSE_WAIT_MS_MAX (further test: test/e2e/traces.test.ts).
 */
import { MessageChannel, Worker } from 'node:worker_threads';
import { withoutUrlSecrets } from '../core/secret-url.js';
import type { AccountIndex } from '../core/units.js';
import { packageVersion } from '../core/version.js';
import type { ListenerTracing } from '../request/messages.js';
import { threadMemory } from './thread-pool.js';
import { callJson, type CallRecord, type CallSink } from '../telemetry/call-record.js';
import type { Log } from '../telemetry/log.js';
import type { MetricsBuffers } from '../telemetry/metrics-layout.js';
import type { FromSpanExport, SpanExportInit, ToSpanExport } from '../telemetry/span-record.js';
import { createExportBudget, ExportBudget, type ExportCounts } from '../telemetry/export-budget.js';
import type { SpanOutlet } from '../telemetry/span-outbox.js';
import { samplingOf, type Sampling } from '../telemetry/trace-sampling.js';

/** How long the last export may delay the end of the gateway. */
const CLOSE_WAIT_MS_MAX = 3_000;

interface TracesOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly exported: { readonly spans: boolean; readonly logRecords: boolean };
  /** Returns the id of an account, for the exporting thread; null if it cannot be read. */
  readonly accountIdOf: (account: AccountIndex) => string | null;
  readonly metrics: MetricsBuffers;
  /** Index of the exporting thread's stripe in the metrics. */
  readonly stripe: number;
  readonly log: Log;
}

/** Starts the export. Returns undefined if nothing is exported. Throws if an endpoint is no HTTP address. */
export function startTraces(
  env: NodeJS.ProcessEnv,
  options: Omit<TracesOptions, 'env' | 'exported'>,
): Traces | undefined {
  const { log } = options;
  // Without a setting spans are exported, and log records are not.
  const exported = {
    spans: isExported(env, 'TRACES', ['', 'otlp'], log),
    logRecords: isExported(env, 'LOGS', ['otlp'], log),
  };
  return exported.spans || exported.logRecords ? new Traces({ ...options, env, exported }) : undefined;
}

/**
 * Returns whether a signal is exported: its `OTEL_…_EXPORTER` is one of `exporters`, in which '' means not
 * set, and there is an endpoint. Logs an unknown exporter; throws if an endpoint is no HTTP address.
 */
function isExported(
  env: NodeJS.ProcessEnv,
  signal: 'TRACES' | 'LOGS',
  exporters: readonly string[],
  log: Log,
): boolean {
  if (env.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return false;
  const setting = `OTEL_${signal}_EXPORTER`;
  const exporter = env[setting] ?? '';
  if (!exporters.includes(exporter)) {
    if (!['', 'none'].includes(exporter))
      log.warn(`${setting}: only otlp or none can be chosen here, so nothing is exported`, { exporter });
    return false;
  }
  for (const name of [`OTEL_EXPORTER_OTLP_${signal}_ENDPOINT`, 'OTEL_EXPORTER_OTLP_ENDPOINT']) {
    const url = env[name]?.trim() ?? '';
    if (url === '') continue;
    const protocol = URL.canParse(url) ? new URL(url).protocol : '';
    if (protocol === 'http:' || protocol === 'https:') return true;
    throw new Error(
      `${name} must be an http or https address such as http://127.0.0.1:4318, got ${withoutUrlSecrets(url)}`,
    );
  }
  return false;
}

export class Traces {
  /** Undefined if no spans are exported. */
  readonly #spans: { readonly sampling: Sampling; readonly budget: SharedArrayBuffer } | undefined;
  /** Undefined if no log records are exported. */
  readonly #logRecordBudget: SharedArrayBuffer | undefined;
  readonly #thread: Worker;
  /** Resolves when the thread has ended, also if it fails before `close`. */
  readonly #exit: Promise<unknown>;
  #closed: Promise<void> | undefined;

  /** Starts the thread. gateway-start.ts has set the V8 flags before: a thread takes them at its start. */
  constructor({ env, exported, accountIdOf, metrics, stripe, log }: TracesOptions) {
    const { sampling, problem } = samplingOf(env);
    if (exported.spans && problem !== undefined) log.warn(problem);
    for (const [signal, isSignalExported] of [
      ['TRACES', exported.spans],
      ['LOGS', exported.logRecords],
    ] as const) {
      const name = `OTEL_EXPORTER_OTLP_${signal}_PROTOCOL`;
      // An empty variable means not set, as everywhere in OpenTelemetry.
      const protocol = [env[name], env.OTEL_EXPORTER_OTLP_PROTOCOL].find((value) => value) ?? '';
      if (isSignalExported && !['', 'http/json'].includes(protocol))
        log.warn(`${name}: only http/json is exported, which the OTLP/HTTP port of a collector takes`, {
          protocol,
        });
    }
    this.#spans = exported.spans ? { sampling, budget: createExportBudget() } : undefined;
    this.#logRecordBudget = exported.logRecords ? createExportBudget() : undefined;
    const init: SpanExportInit = {
      spans: this.#spans?.budget,
      logRecords: this.#logRecordBudget,
      version: packageVersion(),
      metrics,
      stripe,
    };
    this.#thread = new Worker(new URL('../telemetry/span-export.thread.js', import.meta.url), {
      workerData: init,
      name: 'traces',
      resourceLimits: threadMemory(),
    });
    // The exporting thread cannot read the store.
    this.#thread.on('message', ({ accounts }: FromSpanExport) =>
      this.#send({ kind: 'ids', ids: accounts.map((account) => [account, accountIdOf(account)]) }),
    );
    const failure =
      'the thread that exports to OpenTelemetry failed; all is dropped until the gateway is started anew';
    this.#thread.on('error', (error) => {
      log.error(failure, { error: error.stack });
      for (const budget of [this.#spans?.budget, this.#logRecordBudget])
        if (budget !== undefined) new ExportBudget(budget).close();
    });
    // `once` of node:events would reject if the thread fails.
    this.#exit = new Promise((resolve) => this.#thread.once('exit', resolve));
    this.#thread.unref();
  }

  /**
   * Returns what a new listener needs for spans; undefined if none are exported. The outlet's port must be
   * transferred to the listener.
   */
  newListenerTracing(): ListenerTracing | undefined {
    const outlet = this.newOutlet();
    return outlet && { sampling: this.#spans!.sampling, outlet };
  }

  /** Returns a new outlet, whose port must be transferred; undefined if no spans are exported. */
  newOutlet(): SpanOutlet | undefined {
    if (this.#spans === undefined) return undefined;
    const { port1: sourcePort, port2: port } = new MessageChannel();
    this.#send({ kind: 'source', port: sourcePort }, [sourcePort]);
    return { port, budget: this.#spans.budget };
  }

  /** Returns the outbox of ended calls, or undefined if no log records are exported. */
  newCallOutbox(): CallOutbox | undefined {
    return (
      this.#logRecordBudget &&
      new CallOutbox(this.#logRecordBudget, (count, lines) => this.#send({ kind: 'calls', count, lines }))
    );
  }

  get spanCounts(): ExportCounts | undefined {
    return this.#spans && new ExportBudget(this.#spans.budget).counts();
  }

  get logRecordCounts(): ExportCounts | undefined {
    return this.#logRecordBudget && new ExportBudget(this.#logRecordBudget).counts();
  }

  /**
   * Resolves when the thread has ended, which is after its last export, or after CLOSE_WAIT_MS_MAX. Call it
   * when listeners and workers have ended. Each further call resolves as the first.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    this.#send({ kind: 'close' });
    const timer = setTimeout(() => void this.#thread.terminate(), CLOSE_WAIT_MS_MAX);
    await this.#exit;
    clearTimeout(timer);
  }

  #send(message: ToSpanExport, transfer: readonly MessageChannel['port1'][] = []): void {
    this.#thread.postMessage(message, transfer);
  }
}

/** Sends ended calls, as lines of JSON, to the exporting thread. gateway-logs.ts appends, then flushes. */
export class CallOutbox implements CallSink {
  readonly #budget: ExportBudget;
  readonly #send: (count: number, lines: string) => void;
  #lines: string[] = [];

  constructor(budget: SharedArrayBuffer, send: (count: number, lines: string) => void) {
    this.#budget = new ExportBudget(budget);
    this.#send = send;
  }

  /** Adds the call to the next batch. If SPANS_IN_FLIGHT_MAX wait (export-budget.ts), the call is dropped. */
  append(call: CallRecord): void {
    if (this.#budget.take(1)) this.#lines.push(callJson(call));
  }

  /** Counts calls that were lost before `append`: a ring was full, or too many calls were rejected. */
  countDropped(calls: number): void {
    this.#budget.countDropped(calls);
  }

  /** Sends the batch: what was appended since the last flush. */
  flush(): void {
    if (this.#lines.length === 0) return;
    this.#send(this.#lines.length, this.#lines.join('\n'));
    this.#lines = [];
  }
}
