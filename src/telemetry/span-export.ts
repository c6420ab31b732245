/**
 * The OpenTelemetry SDK's batch processor and OTLP/HTTP exporter behind a queue whose every span is counted: exported, failed or
 * dropped. Exporting thread.
 */
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { OTLPExporterBase } from '@opentelemetry/otlp-exporter-base';
import {
  convertLegacyHttpOptions,
  createOtlpHttpExportDelegate,
} from '@opentelemetry/otlp-exporter-base/node-http';
import { TraceExporterMetricsHelper } from '@opentelemetry/otlp-transformer';
import { BatchSpanProcessor, type ReadableSpan, type SpanExporter } from '@opentelemetry/sdk-trace';
import type { Log } from './log.js';
import { SpanJson } from './span-json.js';
import type { SpanBudget } from './span-outbox.js';

/*
 * The OpenTelemetry SDK's OTLP/HTTP exporter of spans as JSON, with a serializer of ours: see span-json.ts. Exporting thread.
 */

/** As OTLPTraceExporter of @opentelemetry/exporter-trace-otlp-http is made, which takes no serializer. */
export class OtlpExporter extends OTLPExporterBase<ReadableSpan[]> implements SpanExporter {
  /** Goes where OTEL_EXPORTER_OTLP_ENDPOINT and its kin say. */
  constructor() {
    // What that exporter uses itself; nothing else of the package reads the environment.
    // eslint-disable-next-line @typescript-eslint/no-deprecated
    const options = convertLegacyHttpOptions({}, 'TRACES', 'v1/traces', {
      'Content-Type': 'application/json',
    });
    super(
      createOtlpHttpExportDelegate(
        options,
        new SpanJson(),
        'otlp_http_span_exporter',
        TraceExporterMetricsHelper,
        undefined,
      ),
    );
  }
}

/** As many as may be on their way: a burst that one batch interval gathers. Some 2 KB each. */
export const QUEUE_SPANS_MAX = 16_384;
/** The SDK's own size; about 0.5 MB of JSON. */
const BATCH_SPANS = 512;
const BATCH_DELAY_MS = 1_000;
/** The exporter's own bound, OTEL_EXPORTER_OTLP_TIMEOUT (10 s by default), comes first and covers its retries. */
const EXPORT_TIMEOUT_MS = 30_000;
/** A collector that is away is reported so often, not with each batch. */
const REPORT_PERIOD_MS = 60_000;

/** Counts what becomes of each batch. */
class CountedExporter implements SpanExporter {
  readonly #exporter: SpanExporter;
  readonly #budget: SpanBudget;
  readonly #log: Log;
  #reportedAtMs = -Infinity;
  /** Spans that the processor has handed over so far. */
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

  /** `exporter` by default goes where OTEL_EXPORTER_OTLP_ENDPOINT and its kin say. */
  constructor(budget: SpanBudget, log: Log, exporter: SpanExporter = new OtlpExporter()) {
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

  /** Takes the span, or drops and counts it where the queue is full: the collector is slow or away. */
  offer(span: ReadableSpan): void {
    if (this.#offered - this.#exporter.handedOver >= QUEUE_SPANS_MAX) {
      this.#budget.countDropped(1);
      return;
    }
    this.#offered += 1;
    this.#processor.onEnd(span);
  }

  /** Sends what is queued; resolves when it is out or has failed, which the caller bounds. */
  async close(): Promise<void> {
    await this.#processor.shutdown().catch(() => undefined);
  }
}
