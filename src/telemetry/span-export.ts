/**
 * The first and the last stage of the exporting thread (span-export.thread.ts): SpanExport unpacks batches of
 * spans, and after account-ids.ts SpanExport and LogRecordExport give spans and log records to a batch
 * processor and an OTLP/HTTP exporter of the OpenTelemetry SDK. An _item_ is a span or a log record.
 *
 * Must hold:
 * - Each item is counted once, as exported, failed or dropped, unless the gateway ends this thread before.
 * - Memory is bounded also if the collector does not respond.
 * - At the end a full queue is sent.
 */
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { OTLPLogExporter } from '@opentelemetry/exporter-logs-otlp-http';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import {
  BatchLogRecordProcessor,
  type LogRecordExporter,
  type ReadableLogRecord,
} from '@opentelemetry/sdk-logs';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';
import type { Log } from './log.js';
import { type ExportBudget, SPANS_IN_FLIGHT_MAX } from './export-budget.js';
import { unpackSpans } from './span-codec.js';
import type { SpanBatch, SpanRecord } from './span-record.js';

/**
 * How many items may wait for the exporter, some 2 KB each: as many as AccountIds may release at once. Spans
 * and log records have a queue each.
 */
export const QUEUE_ITEMS_MAX = SPANS_IN_FLIGHT_MAX;
/** Items of one request to the collector: the SDK's default, about 0.5 MB of JSON. */
const BATCH_ITEMS = 512;
/**
 * How many requests of spans may be open: one for each batch of a full queue, because at the end the SDK's
 * processor of spans sends all of them at once, and one for a batch that was sent before. With the SDK's
 * default of 30, further requests would fail. The processor of log records sends one batch after the other.
 */
const REQUESTS_MAX = QUEUE_ITEMS_MAX / BATCH_ITEMS + 1;
/** An incomplete batch is sent after this time. */
const BATCH_DELAY_MS = 1_000;
/**
 * After this time the processor stops waiting for a batch and sends the next one. Longer than the exporter's
 * own timeout for a batch with all its retries, OTEL_EXPORTER_OTLP_TIMEOUT (10 s by default).
 */
const EXPORT_TIMEOUT_MS = 30_000;
/** While exports keep failing, a failure is logged this often. */
const REPORT_PERIOD_MS = 60_000;

const BATCHING = {
  maxQueueSize: QUEUE_ITEMS_MAX,
  maxExportBatchSize: BATCH_ITEMS,
  scheduledDelayMillis: BATCH_DELAY_MS,
  exportTimeoutMillis: EXPORT_TIMEOUT_MS,
};

/** What the SDK's exporters of spans and of log records have in common. */
interface Exporter<Item> {
  export(items: Item[], done: (result: ExportResult) => void): void;
  shutdown(): Promise<void>;
}

/** The part of the SDK's batch processors that is used. `queue` is their `onEnd` or `onEmit`. */
interface Processor<Item> {
  queue(item: Item): void;
  shutdown(): Promise<void>;
}

/**
 * Bounds the queue of the SDK's batch processor, and counts its items as exported, failed or dropped. Wraps
 * the processor on both sides: `offer` gives the processor an item, and the processor gives batches to
 * `export`, which passes them on to the OTLP exporter.
 *
 * Must hold: the processor queues each item that it gets and hands it to `export` once. If it dropped an
 * item, `#queued` would stay too high. The processor ignores unsampled spans, but none is recorded
 * (request/call-trace.ts, upstream/attempt-span.ts). The processor drops items beyond QUEUE_ITEMS_MAX and
 * items after its end, but `offer` gives it no such items.
 */
class BatchedExport<Item> implements Exporter<Item> {
  protected readonly budget: ExportBudget;
  protected readonly log: Log;
  readonly #itemsName: string;
  readonly #exporter: Exporter<Item>;
  readonly #processor: Processor<Item>;
  /** How many items the processor has and has not given to `export`. */
  #queued = 0;
  /** How many batches the exporter has neither sent yet nor reported as failed. */
  #openBatches = 0;
  /** Resolves the promise of `close`. */
  #onNoneOpen: () => void = () => undefined;
  /** When a failure was last logged. */
  #reportedAtMs = -Infinity;
  /** Whether a failure was logged, and since then no line that exports work again. */
  #hasLoggedFailure = false;
  #isClosed = false;

  /** `itemsName`: `spans` or `log records`, for the log. */
  constructor(
    itemsName: string,
    budget: ExportBudget,
    log: Log,
    exporter: Exporter<Item>,
    processorOf: (batches: BatchedExport<Item>) => Processor<Item>,
  ) {
    this.#itemsName = itemsName;
    this.budget = budget;
    this.log = log;
    this.#exporter = exporter;
    this.#processor = processorOf(this);
  }

  /**
   * Queues the item. Drops and counts it instead after `close`, or if the queue is full because the collector
   * is slow or cannot be reached.
   */
  offer(item: Item): void {
    if (this.#isClosed || this.#queued >= QUEUE_ITEMS_MAX) {
      this.budget.countDropped(1);
      return;
    }
    this.#queued += 1;
    this.#processor.queue(item);
  }

  /**
   * Sends the queued items; resolves when all were sent or have failed. To be called once. The main thread
   * bounds the time: it ends this thread after 3 s (gateway/traces.ts), and items that are not sent by then
   * are not counted.
   */
  async close(): Promise<void> {
    this.#isClosed = true;
    // Errors are ignored, because `export` has counted and logged the batches that failed.
    await this.#processor.shutdown().catch(() => undefined);
    // `shutdown` of the processor of spans does not wait for a batch that was sent before, and if one batch
    // fails, not for the others.
    if (this.#openBatches > 0) await new Promise<void>((resolve) => (this.#onNoneOpen = resolve));
  }

  // The processor calls the next three methods.

  export(items: Item[], done: (result: ExportResult) => void): void {
    this.#queued -= items.length;
    this.#openBatches += 1;
    this.#exporter.export(items, (result) => {
      if (result.code === ExportResultCode.SUCCESS) this.#succeed(items.length);
      else this.#fail(items.length, result.error);
      this.#openBatches -= 1;
      if (this.#openBatches === 0) this.#onNoneOpen();
      done(result);
    });
  }

  shutdown(): Promise<void> {
    return this.#exporter.shutdown();
  }

  /** The exporters have no queue, because each batch is a request. */
  forceFlush(): Promise<void> {
    return Promise.resolve();
  }

  /** After a logged failure, logs once that exports work again. */
  #succeed(items: number): void {
    this.budget.countExported(items);
    if (!this.#hasLoggedFailure) return;
    this.#hasLoggedFailure = false;
    const { failed, dropped } = this.budget.counts();
    this.log.warn(`${this.#itemsName} are exported again`, {
      failedSinceStart: failed,
      droppedSinceStart: dropped,
    });
  }

  #fail(items: number, error: Error | undefined): void {
    this.budget.countFailed(items);
    const nowMs = performance.now();
    if (nowMs - this.#reportedAtMs < REPORT_PERIOD_MS) return;
    this.#reportedAtMs = nowMs;
    this.#hasLoggedFailure = true;
    const { failed, dropped } = this.budget.counts();
    this.log.warn(`${this.#itemsName} could not be exported; calls are not affected`, {
      error: error?.message,
      failedSinceStart: failed,
      droppedSinceStart: dropped,
    });
  }
}

const openSpanExporter = (): SpanExporter => new OTLPTraceExporter({ concurrencyLimit: REQUESTS_MAX });

export class SpanExport extends BatchedExport<ReadableSpan> {
  /** When a batch that cannot be unpacked was last logged. */
  #unreadableAtMs = -Infinity;

  /** The default exporter has its settings from the environment: OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, … */
  constructor(budget: ExportBudget, log: Log, exporter: SpanExporter = openSpanExporter()) {
    super('spans', budget, log, exporter, (batches) => {
      const processor = new BatchSpanProcessor({ exporter: batches, ...BATCHING });
      return { queue: (span) => processor.onEnd(span), shutdown: () => processor.shutdown() };
    });
  }

  /** Unpacks a batch of a listener or worker. Counts it as failed, and returns no spans, if it is damaged. */
  read({ count, bytes }: SpanBatch): readonly SpanRecord[] {
    try {
      const records: unknown = unpackSpans(bytes);
      // Damaged bytes may unpack to any value. Only `count` spans give back what the sender took.
      if (Array.isArray(records) && records.length === count) return records as SpanRecord[];
      throw new Error(`the batch does not have the ${count} spans that it should have`);
    } catch (error) {
      this.budget.giveBack(count);
      this.budget.countFailed(count);
      this.#reportUnreadable(error);
      return [];
    }
  }

  #reportUnreadable(error: unknown): void {
    const nowMs = performance.now();
    if (nowMs - this.#unreadableAtMs < REPORT_PERIOD_MS) return;
    this.#unreadableAtMs = nowMs;
    this.log.error('spans could not be unpacked and are lost; calls are not affected', {
      error: String(error),
      failedSinceStart: this.budget.counts().failed,
    });
  }
}

/** Exports log records (otel-items.ts makes them). The default exporter is set like that of spans. */
export class LogRecordExport extends BatchedExport<ReadableLogRecord> {
  constructor(budget: ExportBudget, log: Log, exporter: LogRecordExporter = new OTLPLogExporter()) {
    super('log records', budget, log, exporter, (batches) => {
      const processor = new BatchLogRecordProcessor({ exporter: batches, ...BATCHING });
      // The cast is safe because the processor only reads the record.
      return {
        queue: (record) => processor.onEmit(record as Parameters<typeof processor.onEmit>[0]),
        shutdown: () => processor.shutdown(),
      };
    });
  }
}
