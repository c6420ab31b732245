/**
 * A span on its way from the thread that made it to the thread that exports it: plain, cheap to pack (span-packing.ts). Both ends import this file.
 *
 * Times are of the monotonic clock that all threads share, in milliseconds. Null is what is not there.
 */
import type { AccountIndex } from '../core/units.js';

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
  /** As the answer names it. */
  readonly answerModel: string | null;
  readonly provider: string;
  /** Tries of the call that came before. */
  readonly earlierTries: number;
  readonly stream: boolean;
}

export type SpanRecord = CallSpanRecord | AttemptSpanRecord;
