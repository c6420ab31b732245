/**
 * Types of the messages of the exporting thread (span-export.thread.ts). Listeners and upstream workers send
 * it span records (span-codec.ts). The main thread sends ids of accounts, and ended calls, which are exported
 * as log records. Times are milliseconds of the monotonic clock that all threads share.
 *
 * Must hold:
 * - A span record has only what MessagePack has: text, numbers, bigints, booleans, null and arrays
 *   (test/unit/telemetry/span-outbox.test.ts).
 * - A new member is packed like any other, but is exported only if otel-items.ts makes an attribute of it
 *   (test/unit/telemetry/otel-items.test.ts).
 */
import type { MessagePort } from 'node:worker_threads';
import type { DoorName } from '../core/door-names.js';
import type { TokenCounts } from '../core/token-counts.js';
import type { AccountIndex } from '../core/units.js';
import type { MetricsBuffers } from './metrics-layout.js';

// Kinds of spans. Small numbers, because these take one byte in a packed record.
export const SPAN_OF_CALL = 0;
export const SPAN_OF_ATTEMPT = 1;

/**
 * Cached and cache-write tokens are parts of the input, reasoning tokens are a part of the output. A tuple,
 * because the names of members would take most of its bytes in a packed record.
 */
type SpanTokens = readonly [
  input: number,
  cached: number,
  cacheWrite: number,
  output: number,
  reasoning: number,
];

/** Returns the tokens of a charged call. otel-items.ts takes the tuple apart. */
export function spanTokensOf(usage: TokenCounts): SpanTokens {
  const { promptTokens, cachedTokens, cacheWriteTokens, completionTokens, reasoningTokens } = usage;
  return [promptTokens, cachedTokens, cacheWriteTokens, completionTokens, reasoningTokens];
}

interface AnySpanRecord {
  readonly traceId: string;
  readonly spanId: string;
  /** Trace flags of W3C Trace Context (trace-context.ts). */
  readonly flags: number;
  /** The caller's `tracestate`; empty if the caller sent none. */
  readonly traceState: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly requestId: string;
  readonly door: DoorName;
}

/** A call of a known caller. One that fails before its authentication has no span. */
export interface CallSpanRecord extends AnySpanRecord {
  readonly kind: typeof SPAN_OF_CALL;
  /** The caller's span; null if it sent none. */
  readonly parentSpanId: string | null;
  /** When the first bytes of a stream were written to the caller; null if none were. */
  readonly firstTokenMs: number | null;
  /** `ok`, `client_gone`, or the code of an error. */
  readonly outcome: string;
  /** HTTP status; null if the client had gone before one was sent. */
  readonly status: number | null;
  readonly account: AccountIndex;
  /** The model's id in the catalogue, by which the caller names it. Null if the call was not admitted. */
  readonly model: string | null;
  /** The fallback that answered; null if none did. */
  readonly answeredModel: string | null;
  /** `owned_by` of the model in the settings; null if `model` is null. */
  readonly provider: string | null;
  /** False if the call was not admitted. */
  readonly stream: boolean;
  /** Null if the call was not charged. Spans of attempts have none, so that sums count no token twice. */
  readonly tokens: SpanTokens | null;
  /** Null if `tokens` is null. */
  readonly costPicoUnits: bigint | null;
  /** How long the call waited for the limits of its upstreams. */
  readonly queuedMs: number;
}

/** One attempt on an upstream. */
export interface AttemptSpanRecord extends AnySpanRecord {
  readonly kind: typeof SPAN_OF_ATTEMPT;
  /** The span of the call. */
  readonly parentSpanId: string;
  /** When the worker relayed the first byte of a stream; null if it relayed none. */
  readonly firstByteMs: number | null;
  /** Kind of a failure, or `cancelled`; null if the attempt succeeded. */
  readonly error: string | null;
  /** HTTP status; null if none came. */
  readonly status: number | null;
  /** Origin of the upstream. */
  readonly origin: string;
  /** The model's name at the upstream. */
  readonly model: string;
  /** The model that the response names; null if it names none. */
  readonly responseModel: string | null;
  /** OpenTelemetry's name of the provider; if it has none, `owned_by` of the model in the settings. */
  readonly provider: string;
  /** Attempts of the call before this one. */
  readonly earlierAttempts: number;
  readonly stream: boolean;
}

export type SpanRecord = CallSpanRecord | AttemptSpanRecord;

/** `workerData` of the exporting thread. */
export interface SpanExportInit {
  /** The budget of spans (ExportBudget); undefined if none are exported. */
  readonly spans: SharedArrayBuffer | undefined;
  /** The budget of log records, likewise. */
  readonly logRecords: SharedArrayBuffer | undefined;
  /** The version of Tollgate. */
  readonly version: string;
  readonly metrics: MetricsBuffers;
  /** The index of the thread's stripe in `metrics.threads`, for its health (thread-health.ts). */
  readonly stripe: number;
}

/** A message of a listener or worker to the exporting thread. */
export interface SpanBatch {
  /** How many spans `bytes` has: what the sender took of the budget, also if `bytes` cannot be unpacked. */
  readonly count: number;
  /** What `packSpans` returned. */
  readonly bytes: Uint8Array;
}

/** Messages of the main thread (gateway/traces.ts) to the exporting thread. */
export type ToSpanExport =
  /** A listener or worker sends batches (SpanBatch) over this port. */
  | { readonly kind: 'source'; readonly port: MessagePort }
  /** Ended calls, to be log records: `count` lines of JSON (call-record.ts). */
  | { readonly kind: 'calls'; readonly count: number; readonly lines: string }
  /** Reply to `accounts`: an id for each index, null if it could not be read. */
  | { readonly kind: 'ids'; readonly ids: readonly (readonly [AccountIndex, string | null])[] }
  /** The last message. The sources have ended: the thread exports what they sent, and then ends. */
  | { readonly kind: 'close' };

/** The only message to the main thread. Asks for ids of accounts; the reply is `ids`. */
export interface FromSpanExport {
  readonly kind: 'accounts';
  readonly accounts: readonly AccountIndex[];
}
