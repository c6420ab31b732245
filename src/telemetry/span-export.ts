/**
 * The stages of the exporting thread (span-export.thread.ts): SpanExport unpacks batches of spans.
 * AccountIds holds batches until the ids of their accounts are known. SpanExport and LogRecordExport give
 * spans and log records to a batch processor and an OTLP/HTTP exporter of the OpenTelemetry SDK. An _item_ is
 * a span or a log record. Each item is counted as exported, failed or dropped, unless the gateway ends this
 * thread before.
 *
 * Must hold (test/unit/telemetry/spans.test.ts):
 * - Memory is bounded also if the collector does not respond.
 * - At the end a full queue is sent.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { OTLPLogExporter } from '@opentelemetry/exporter-logs-otlp-http';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import {
  BatchLogRecordProcessor,
  type LogRecordExporter,
  type ReadableLogRecord,
} from '@opentelemetry/sdk-logs';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';
import type { AccountIndex } from '../core/units.js';
import type { Log } from './log.js';
import { type ExportBudget, SPANS_IN_FLIGHT_MAX } from './span-outbox.js';
import { unpackSpans } from './span-codec.js';
import { SPAN_OF_CALL, type SpanBatch, type SpanRecord } from './span-record.js';

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

/** How many ids are cached. The cache is emptied before it would have more. */
const IDS_MAX = 100_000;

/**
 * Spans name accounts by index, and only the main thread can look up an account's id. So a batch waits here
 * until its ids are known.
 */
export class AccountIds {
  readonly #ask: (accounts: readonly AccountIndex[]) => void;
  readonly #ready: (records: readonly SpanRecord[]) => void;
  /** By account. Null if the main thread could not read the id when it was asked. */
  readonly #ids = new Map<AccountIndex, string | null>();
  /** Whether `ask` was called and its reply has not come. One request for ids runs at a time. */
  #isAsking = false;
  /** Batches in the order of arrival. SPANS_IN_FLIGHT_MAX bounds their spans. */
  readonly #waiting: (readonly SpanRecord[])[] = [];
  /** Resolves the promise that `releaseAll` waits for. */
  #onNoneWaiting: () => void = () => undefined;

  /** `ask` requests ids from the main thread; the reply goes to `onIds`. `ready` gets batches in order. */
  constructor(
    ask: (accounts: readonly AccountIndex[]) => void,
    ready: (records: readonly SpanRecord[]) => void,
  ) {
    this.#ask = ask;
    this.#ready = ready;
  }

  /** Returns undefined if the id could not be read, or did not come before `releaseAll` gave up. */
  idOf(account: AccountIndex): string | undefined {
    return this.#ids.get(account) ?? undefined;
  }

  /** Adds a batch, which goes to `ready` at once if its ids are known and no batch waits before it. */
  add(records: readonly SpanRecord[]): void {
    this.#waiting.push(records);
    this.#release();
  }

  /**
   * To be called with the reply to `ask`, which has each account that was asked for. Without a reply all
   * batches wait, until `releaseAll`.
   */
  onIds(ids: readonly (readonly [AccountIndex, string | null])[]): void {
    if (this.#ids.size + ids.length > IDS_MAX) this.#ids.clear();
    for (const [account, id] of ids) this.#ids.set(account, id);
    this.#isAsking = false;
    this.#release();
  }

  /** To be called every 10 s, so that an id that could not be read is asked for again. */
  forget(): void {
    this.#ids.clear();
  }

  /**
   * Resolves when no batch waits, or after `timeoutMs`: then the waiting batches go to `ready` without ids.
   * Called once, at the end: the thread then ends by `process.exit`, so the timer need not be cleared.
   */
  async releaseAll(timeoutMs: number): Promise<void> {
    const empty = new Promise<void>((resolve) => (this.#onNoneWaiting = resolve));
    this.#release();
    await Promise.race([empty, delay(timeoutMs)]);
    for (const records of this.#waiting.splice(0)) this.#ready(records);
  }

  /**
   * Gives batches to `ready`, up to the first batch with an unknown id. Asks for that batch's ids, unless a
   * request runs already.
   */
  #release(): void {
    while (this.#waiting.length > 0) {
      const unknown = this.#unknownOf(this.#waiting[0]!);
      if (unknown.size > 0) {
        if (!this.#isAsking) this.#ask([...unknown]);
        this.#isAsking = true;
        return;
      }
      this.#ready(this.#waiting.shift()!);
    }
    this.#onNoneWaiting();
  }

  /** Returns the accounts whose ids are not cached. Only spans of calls name an account. */
  #unknownOf(records: readonly SpanRecord[]): Set<AccountIndex> {
    const unknown = new Set<AccountIndex>();
    for (const record of records)
      if (record.kind === SPAN_OF_CALL && !this.#ids.has(record.account)) unknown.add(record.account);
    return unknown;
  }
}
