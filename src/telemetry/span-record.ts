/**
 * Types of what threads send each other about spans: records of spans, which listeners and upstream workers
 * pack and the exporting thread unpacks (span-codec.ts), and the messages between the main thread and the
 * exporting thread. Times are milliseconds of the monotonic clock that all threads share.
 *
 * Tests: test/unit/telemetry/spans.test.ts, test/unit/telemetry/otel-span.test.ts.
 */
import type { MessagePort } from 'node:worker_threads';
import type { DoorName } from '../core/door-names.js';
import type { AccountIndex } from '../core/units.js';
import type { MetricsBuffers } from './metrics-layout.js';

export const SPAN_OF_CALL = 0;
export const SPAN_OF_ATTEMPT = 1;

/** Cached and cache-write tokens are parts of the input, reasoning tokens are a part of the output. */
type SpanTokens = readonly [
  input: number,
  cached: number,
  cacheWrite: number,
  output: number,
  reasoning: number,
];

/** A call of a known caller. */
export interface CallSpanRecord {
  readonly kind: typeof SPAN_OF_CALL;
  readonly traceId: string;
  readonly spanId: string;
  /** The caller's span; null if it sent none. */
  readonly parentSpanId: string | null;
  readonly flags: number;
  readonly traceState: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly firstTokenMs: number | null;
  /** `ok`, `client_gone`, or the code of an error. */
  readonly outcome: string;
  /** HTTP status; null if the client had gone. */
  readonly status: number | null;
  readonly requestId: string;
  readonly door: DoorName;
  readonly account: AccountIndex;
  readonly model: string | null;
  /** Null if no other model answered. */
  readonly answeredModel: string | null;
  readonly provider: string | null;
  readonly stream: boolean;
  /** Spans of attempts have none, or a sum over all spans would count tokens twice. */
  readonly tokens: SpanTokens | null;
  readonly costPicoUnits: bigint | null;
  /** How long the call waited for the limits of its upstreams. */
  readonly queuedMs: number;
}

/** One attempt on an upstream. */
export interface AttemptSpanRecord {
  readonly kind: typeof SPAN_OF_ATTEMPT;
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly flags: number;
  readonly traceState: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly firstByteMs: number | null;
  /** Kind of a failure, or `cancelled`; null if the attempt succeeded. */
  readonly error: string | null;
  /** HTTP status; null if none came. */
  readonly status: number | null;
  readonly requestId: string;
  readonly door: DoorName;
  /** Origin of the upstream. */
  readonly origin: string;
  readonly model: string;
  /** The model that the response names. */
  readonly responseModel: string | null;
  readonly provider: string;
  /** Attempts of the call before this one. */
  readonly earlierTries: number;
  readonly stream: boolean;
}

export type SpanRecord = CallSpanRecord | AttemptSpanRecord;

/** `workerData` of the exporting thread. */
export interface SpanExportInit {
  /** The budget of spans (ExportBudget); undefined if none are exported. */
  readonly spans: SharedArrayBuffer | undefined;
  /** The budget of log records, likewise. */
  readonly logRecords: SharedArrayBuffer | undefined;
  readonly version: string;
  readonly metrics: MetricsBuffers;
  /** The thread's stripe in the metrics. */
  readonly thread: number;
}

export type ToSpanExport =
  /** A listener or worker sends spans over this port, packed. */
  | { readonly kind: 'source'; readonly port: MessagePort }
  /** Calls that ended, each a line of JSON (telemetry/call-record.ts). */
  | { readonly kind: 'calls'; readonly count: number; readonly lines: string }
  /** Reply to `accounts`: an id for each index, null if it could not be read. */
  | { readonly kind: 'ids'; readonly ids: readonly (readonly [AccountIndex, string | null])[] }
  /** The sources have ended: export what they sent, then end. */
  | { readonly kind: 'close' };

/** Asks for the ids of these accounts. The reply is `ids`. */
export interface FromSpanExport {
  readonly kind: 'accounts';
  readonly accounts: readonly AccountIndex[];
}
