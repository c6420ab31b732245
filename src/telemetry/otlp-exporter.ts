/**
 * The OpenTelemetry SDK's OTLP/HTTP exporter of spans as JSON, with a serializer of ours: see span-json.ts. Exporting thread.
 */
import { OTLPExporterBase } from '@opentelemetry/otlp-exporter-base';
import {
  convertLegacyHttpOptions,
  createOtlpHttpExportDelegate,
} from '@opentelemetry/otlp-exporter-base/node-http';
import { TraceExporterMetricsHelper } from '@opentelemetry/otlp-transformer';
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace';
import { SpanJson } from './span-json.js';

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
