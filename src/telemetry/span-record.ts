/**
 * A span on its way from the thread that made it to the thread that exports it: plain, cheap to pack (span-packing.ts). Both ends import this file.
 *
 * Times are of the monotonic clock that all threads share, in milliseconds. Null is what is not there.
 */
import type { MessagePort } from 'node:worker_threads';
import { Packr } from 'msgpackr';
import type { AccountIndex } from '../core/units.js';
import type { MetricsBuffers } from './metrics-layout.js';

export const SPAN_OF_CALL = 0;
export const SPAN_OF_ATTEMPT = 1;

/** Input, cached input and output tokens. */
export type SpanTokens = readonly [number, number, number];

/** One for each chat call of a known caller. */
export interface CallSpanRecord {
  readonly kind: typeof SPAN_OF_CALL;
  readonly traceId: string;
  readonly spanId: string;
  /** Of the caller; null where it sent none. */
  readonly parentSpanId: string | null;
  readonly flags: number;
  readonly traceState: string;
  readonly startMs: number;
  readonly endMs: number;
  readonly firstTokenMs: number | null;
  /** `ok`, `client_gone`, or the code of an error. */
  readonly outcome: string;
  /** Of HTTP; null where the client had gone. */
  readonly status: number | null;
  readonly requestId: string;
  readonly account: AccountIndex;
  readonly model: string | null;
  readonly provider: string | null;
  readonly stream: boolean;
  /** Of this span alone, and not of the tries below it: who sums tokens over spans would count them twice. */
  readonly tokens: SpanTokens | null;
  readonly costPicoUnits: bigint | null;
}

/** One for each try on an upstream. */
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
  /** Kind of a failure, or `cancelled`. */
  readonly error: string | null;
  /** Of HTTP; null where none came. */
  readonly status: number | null;
  readonly requestId: string;
  /** Origin of the upstream. */
  readonly origin: string;
  readonly model: string;
  /** As the response names it. */
  readonly responseModel: string | null;
  readonly provider: string;
  /** Tries of the call that came before. */
  readonly earlierTries: number;
  readonly stream: boolean;
}

export type SpanRecord = CallSpanRecord | AttemptSpanRecord;

/*
 * What passes between the main thread and the thread that exports spans. Both ends import this file.
 */

/** `workerData` of the exporting thread. */
export interface SpanExportInit {
  readonly budget: SharedArrayBuffer;
  readonly version: string;
  readonly metrics: MetricsBuffers;
  /** Its stripe among those of the threads. */
  readonly thread: number;
}

export type ToSpanExport =
  /** Spans of a listener or worker come over this port. */
  | { readonly kind: 'source'; readonly port: MessagePort }
  /** Answers `accounts`, one id for each index; null where there is no such account any more. */
  | { readonly kind: 'ids'; readonly ids: readonly (readonly [AccountIndex, string | null])[] }
  /** The sources have ended: send what is there, then end. */
  | { readonly kind: 'close' };

/** The ids of these accounts are wanted; `ids` follows. */
export interface FromSpanExport {
  readonly kind: 'accounts';
  readonly accounts: readonly AccountIndex[];
}

/*
 * Spans as bytes, for their way to the exporting thread. Both ends import this file, and where no spans are exported nobody does:
 * msgpackr takes a thread 25 ms to load.
 */

// Spans of a batch share the names of their members, which stand in each batch once; 64-bit integers are money.
const packr = new Packr({ useRecords: true, moreTypes: false, int64AsType: 'bigint' });

/** Bytes of their own, to be handed over. Some 1 µs a span. */
export function packSpans(spans: readonly SpanRecord[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(packr.pack(spans));
}

export function unpackSpans(bytes: Uint8Array): SpanRecord[] {
  return packr.unpack(bytes) as SpanRecord[];
}
