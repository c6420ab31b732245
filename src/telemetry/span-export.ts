/**
 * The two stages of the exporting thread (span-export.thread.ts): AccountIds holds batches of spans until the
 * ids of their accounts are known, and SpanExport gives spans to the OpenTelemetry SDK's batch processor and
 * OTLP/HTTP exporter. Every span is counted as exported, failed or dropped.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';
import type { AccountIndex } from '../core/units.js';
import type { Log } from './log.js';
import type { SpanBudget } from './span-outbox.js';
import { SPAN_OF_CALL, type SpanRecord } from './span-record.js';

/** As many as may be on their way here: a burst within one batch interval. Some 2 KB each. */
export const QUEUE_SPANS_MAX = 16_384;
/** The SDK's own size; about 0.5 MB of JSON. */
const BATCH_SPANS = 512;
const BATCH_DELAY_MS = 1_000;
/** Above the exporter's own bound, OTEL_EXPORTER_OTLP_TIMEOUT (default 10 s), which covers its retries. */
const EXPORT_TIMEOUT_MS = 30_000;
/** How often a collector that is away is logged. */
const REPORT_PERIOD_MS = 60_000;

/** Counts what becomes of each batch. */
class CountedExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #budget: SpanBudget;
  readonly #log: Log;
  #reportedAtMs = -Infinity;
  /** Spans that the processor has passed on so far. */
  handedOver = 0;

  constructor(exporter: SpanExporter, budget: SpanBudget, log: Log) {
    this.#exporter = exporter;
    this.#budget = budget;
    this.#log = log;
  }

  export(spans: ReadableSpan[], done: (result: ExportResult) => void): void {
    this.handedOver += spans.length;
    this.#exporter.export(spans, (result) => {
      if (result.code === ExportResultCode.SUCCESS) this.#budget.countExported(spans.length);
      else this.#fail(spans.length, result.error);
      done(result);
    });
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }

  #fail(spans: number, error: Error | undefined): void {
    this.#budget.countFailed(spans);
    const nowMs = performance.now();
    if (nowMs - this.#reportedAtMs < REPORT_PERIOD_MS) return;
    this.#reportedAtMs = nowMs;
    const { failed, dropped } = this.#budget.counts();
    this.#log.warn('spans could not be exported; calls are not affected', {
      error: error?.message,
      failedSinceStart: failed,
      droppedSinceStart: dropped,
    });
  }
}

export class SpanExport {
  readonly #budget: SpanBudget;
  readonly #exporter: CountedExporter;
  readonly #processor: BatchSpanProcessor;
  #offered = 0;

  /** The default exporter sends to the address in OTEL_EXPORTER_OTLP_ENDPOINT and its kin. */
  constructor(budget: SpanBudget, log: Log, exporter: SpanExporter = new OTLPTraceExporter()) {
    this.#budget = budget;
    this.#exporter = new CountedExporter(exporter, budget, log);
    this.#processor = new BatchSpanProcessor({
      exporter: this.#exporter,
      maxQueueSize: QUEUE_SPANS_MAX,
      maxExportBatchSize: BATCH_SPANS,
      scheduledDelayMillis: BATCH_DELAY_MS,
      exportTimeoutMillis: EXPORT_TIMEOUT_MS,
    });
  }

  /** Queues the span, or drops and counts it if the queue is full because the collector is slow or away. */
  offer(span: ReadableSpan): void {
    if (this.#offered - this.#exporter.handedOver >= QUEUE_SPANS_MAX) {
      this.#budget.countDropped(1);
      return;
    }
    this.#offered += 1;
    this.#processor.onEnd(span);
  }

  /** Sends what is queued; resolves when it was sent or has failed. The caller bounds the wait. */
  async close(): Promise<void> {
    await this.#processor.shutdown().catch(() => undefined);
  }
}

/** Ids that are kept. With more accounts in use they are asked for again. */
const IDS_MAX = 100_000;

/**
 * Spans name accounts by index, and only the main thread can look up the id of one: a batch waits until the
 * ids it needs are known.
 */
export class AccountIds {
  readonly #ask: (accounts: readonly AccountIndex[]) => void;
  readonly #ready: (records: readonly SpanRecord[]) => void;
  readonly #ids = new Map<AccountIndex, string | null>();
  #asked = false;
  /** In the order in which they came; bounded by the spans that may be on their way. */
  readonly #waiting: (readonly SpanRecord[])[] = [];
  #onEmpty: () => void = () => undefined;

  /** `ask` requests ids, which come by `learn`; `ready` gets the batches in their order. */
  constructor(
    ask: (accounts: readonly AccountIndex[]) => void,
    ready: (records: readonly SpanRecord[]) => void,
  ) {
    this.#ask = ask;
    this.#ready = ready;
  }

  /** Returns undefined if there is no such account any more, or its id did not come in time. */
  idOf(account: AccountIndex): string | undefined {
    return this.#ids.get(account) ?? undefined;
  }

  add(records: readonly SpanRecord[]): void {
    this.#waiting.push(records);
    this.#release();
  }

  learn(ids: readonly (readonly [AccountIndex, string | null])[]): void {
    if (this.#ids.size + ids.length > IDS_MAX) this.#ids.clear();
    for (const [account, id] of ids) this.#ids.set(account, id);
    this.#asked = false;
    this.#release();
  }

  /** To be called now and then, because an index may be given to another account. */
  forget(): void {
    this.#ids.clear();
  }

  /** Resolves when nothing waits any more, or after `timeoutMs`; what waits then goes on without ids. */
  async finish(timeoutMs: number): Promise<void> {
    const empty = new Promise<void>((resolve) => (this.#onEmpty = resolve));
    this.#release();
    await Promise.race([empty, delay(timeoutMs)]);
    for (const records of this.#waiting.splice(0)) this.#ready(records);
  }

  #release(): void {
    while (this.#waiting.length > 0) {
      const unknown = this.#unknownOf(this.#waiting[0]!);
      if (unknown.size > 0) {
        if (!this.#asked) this.#ask([...unknown]);
        this.#asked = true;
        return;
      }
      this.#ready(this.#waiting.shift()!);
    }
    this.#onEmpty();
  }

  #unknownOf(records: readonly SpanRecord[]): Set<AccountIndex> {
    const unknown = new Set<AccountIndex>();
    for (const record of records)
      if (record.kind === SPAN_OF_CALL && !this.#ids.has(record.account)) unknown.add(record.account);
    return unknown;
  }
}
