/**
 * A call that has ended, as its listener knows it: accounts, keys, models and upstreams by number, not by
 * name. request/chat-exchange.ts makes one for each call that is logged or stored, call-ring.ts carries it to
 * the main thread, and gateway/call-lines.ts makes the `CallRecord` of it, with names. Any thread.
 *
 * An EndedCall is only in the memory of one process, so its fields may change. A plain call
 * (call-ring-layout.ts) has no such object, unless calls are exported as log records.
 *
 * Must hold: a new field goes into call-ring-layout.ts, call-ring.ts and call-ring-reader.ts
 * (test/unit/telemetry/call-ring.test.ts compares what goes in and comes out), and if plain calls have it,
 * into `#appendPlain` of request/chat-exchange.ts and `addPlain` of call-log/block-builder.ts too.
 */
import type { QuotasLeft } from '../core/quotas.js';
import type { TokenCounts } from '../core/token-counts.js';
import type { AccountIndex, KeyIndex, PicoUnits, WallMs } from '../core/units.js';
import { FAILURE_KINDS, type Outcome } from './metrics-layout.js';

/**
 * Why an attempt failed, in the terms of the metrics; or `cancelled`, because the client disconnected. The
 * call ring has the index, so both its ends use this list.
 */
export const ATTEMPT_CODES = [...FAILURE_KINDS, 'cancelled'] as const;
export type AttemptCode = (typeof ATTEMPT_CODES)[number];

/** One attempt on one upstream. Times are milliseconds; `startMs` counts from the arrival of the call. */
export interface EndedAttempt {
  /** The upstream's slot in the metrics. */
  readonly upstream: number;
  /** The model's index in the catalogue. */
  readonly model: number;
  /** 0 if the upstream sent none. */
  readonly status: number;
  /** Undefined if the attempt did not fail. */
  readonly code: AttemptCode | undefined;
  readonly startMs: number;
  readonly durationMs: number;
  /** The cause, for operators; may be empty. */
  readonly error: string;
}

/** Which logs get the call: `log`, the access log; `store`, the call log on disk. */
export interface WantedLogs {
  readonly log: boolean;
  readonly store: boolean;
}

export interface EndedCall {
  /** The listener's count, which is in the request's id in base 36: `req_…-1c`. */
  readonly request: number;
  /** The door by which the call came: index in DOOR_NAMES. */
  readonly door: number;
  readonly endedMs: WallMs;
  readonly outcome: Outcome;
  /** Whether a part of the response had been sent to the caller. */
  readonly begun: boolean;
  readonly stream: boolean;
  /** Undefined if the response cache was not asked. */
  readonly cache: 'hit' | 'miss' | undefined;
  /** Account and key are undefined if the caller's key is not valid. */
  readonly account: AccountIndex | undefined;
  readonly key: KeyIndex | undefined;
  /** The model that the caller named: index in the catalogue; undefined if there is no such model. */
  readonly model: number | undefined;
  /** The upstream that was called last: slot in the metrics; undefined if none was called. */
  readonly upstream: number | undefined;
  /** Undefined if the call was not charged. */
  readonly usage: EndedUsage | undefined;
  /** From the arrival of the call to the first event of its stream; undefined if no stream has begun. */
  readonly firstTokenMs: number | undefined;
  /** From the arrival of the call to its end. */
  readonly durationMs: number;
  /** The part of `durationMs` in which the call waited for its upstreams' limits; whole milliseconds. */
  readonly queuedMs: number;
  /** From the arrival of the call to its admission; undefined if it was not admitted. */
  readonly admittedMs: number | undefined;
  /** Undefined if the call was not admitted, or is not stored. */
  readonly quotas: QuotasLeft | undefined;
  /** At most CALL_ATTEMPTS_MAX (call-record.ts); the ring carries no more. */
  readonly attempts: readonly EndedAttempt[];
  /** The error message that the caller got; empty if none. */
  readonly error: string;
}

export interface EndedUsage extends TokenCounts {
  /** The model that served the call, whose price was charged: index in the catalogue. */
  readonly answered: number;
  /** Who counted the tokens: index in USAGE_SOURCES. */
  readonly source: number;
  readonly charged: PicoUnits;
}
