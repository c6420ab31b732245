/**
 * A call that has ended, as its listener knows it: accounts, keys, models and upstreams by slot. It goes to
 * the main thread by call-ring.ts, which makes a `CallRecord` of it. Any thread.
 */
import type { QuotasLeft } from '../core/quotas-left.js';
import type { TokenCounts } from '../core/token-counts.js';
import type { AccountIndex, KeyIndex, PicoUnits, WallMs } from '../core/units.js';
import { FAILURE_KINDS, type Outcome } from './metrics-layout.js';

/** How an attempt ended that was not good: as the metrics count it, or because its client had gone. */
export const ATTEMPT_CODES = [...FAILURE_KINDS, 'cancelled'] as const;
export type AttemptCode = (typeof ATTEMPT_CODES)[number];

/** One try on one upstream. Times are milliseconds, the start's after the call came. */
export interface EndedAttempt {
  /** Slot among the metrics. */
  readonly upstream: number;
  /** Index into the catalogue. */
  readonly model: number;
  /** 0 if the upstream sent none. */
  readonly status: number;
  readonly code: AttemptCode | undefined;
  readonly startMs: number;
  readonly durationMs: number;
  /** For operators; empty if nothing is to be said. */
  readonly error: string;
}

/** Who wants a call. */
export interface Wanted {
  readonly log: boolean;
  readonly store: boolean;
}

export interface EndedCall {
  /** The count part of the request's identifier. */
  readonly request: number;
  /** By which it came: position in DOOR_NAMES. */
  readonly door: number;
  readonly endedMs: WallMs;
  readonly outcome: Outcome;
  /** Whether a part of the response had been given to the caller. */
  readonly begun: boolean;
  readonly stream: boolean;
  /** Undefined if the response cache was not asked. */
  readonly cache: 'hit' | 'miss' | undefined;
  readonly account: AccountIndex | undefined;
  readonly key: KeyIndex | undefined;
  /** The model that the caller named. */
  readonly model: number | undefined;
  readonly upstream: number | undefined;
  /** Undefined if the call was not charged. */
  readonly usage: EndedUsage | undefined;
  readonly firstTokenMs: number | undefined;
  readonly durationMs: number;
  /** Time of it in which the call waited for room in the limits of its upstreams. */
  readonly queuedMs: number;
  /** After the call came; undefined if it was not admitted. */
  readonly admittedMs: number | undefined;
  /** Undefined if it was not admitted, or is not stored. */
  readonly quotas: QuotasLeft | undefined;
  /** At most CALL_ATTEMPTS_MAX count. */
  readonly attempts: readonly EndedAttempt[];
  /** What the caller was told in place of a response; empty if nothing. */
  readonly error: string;
}

export interface EndedUsage extends TokenCounts {
  /** The model that answered, whose price was charged. */
  readonly answered: number;
  /** Index into `USAGE_SOURCES`. */
  readonly source: number;
  readonly charged: PicoUnits;
}
