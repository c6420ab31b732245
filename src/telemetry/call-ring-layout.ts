/**
 * The call ring, which carries ended calls to the access log and the call log: its layout, and an ended call
 * as its listener knows it (EndedCall), with accounts, keys, models and upstreams by number, not by name.
 * Each listener has a ring. request/recorded-call.ts makes an EndedCall of each call that goes to one of the
 * logs, and appends it (call-ring-writer.ts); the main thread reads the calls (call-ring-reader.ts), and
 * gateway/call-lines.ts makes the `CallRecord` of each, with names. A plain call (below) has no such object,
 * unless calls are exported as log records. A ring is in memory only, so a new version may change the layout
 * and the fields. A full ring drops and counts records, and never delays a call. Charges go through the
 * journal, which loses none.
 *
 * Must hold: the fields below follow each other without a gap or an overlap (call-ring-layout.test.ts), and
 * writers and readers follow them (test/unit/telemetry/call-ring-writer.test.ts compares what goes in and
 * comes out). Add a new field here, in call-ring-writer.ts and in call-ring-reader.ts. If plain calls have
 * it, add it also in `#appendPlain` of request/recorded-call.ts and in `addPlain` of
 * call-log/block-builder.ts, which write and read them (test/unit/call-log/plain-calls.test.ts).
 *
 *     a call        kind, length (core/spsc-ring.ts), fields, attempts, quotas, texts of attempts, error
 *     a plain call  kind, length, fields, quotas
 *     an attempt    40 bytes: start, duration (floats); upstream, model, status, code (index into
 *                   ATTEMPT_CODES; NOTHING if it did not fail), bytes of its text (32 bits each); 4 unused
 *     a quota       16 bytes: code, slot (32 bits each), left (float)
 *
 * A plain call goes only to the call log, succeeded at its only attempt, was charged, and has no error
 * text. Most calls are plain, so their record is shorter: two cache lines, with kind and length.
 */
import type { QuotasLeft } from '../core/quotas-left.js';
import { FIELDS_AT, createSpscRing } from '../core/spsc-ring.js';
import type { TokenCounts } from '../core/token-counts.js';
import type { AccountIndex, KeyIndex, PicoUnits, WallMs } from '../core/units.js';
import { FAILURE_KINDS, type Outcome } from './metrics-layout.js';

/** Kinds of records. */
export const CALL = 1;
export const PLAIN_CALL = 2;
export const RECORD_BYTES = FIELDS_AT + 152;
export const ATTEMPT_BYTES = 40;
export const QUOTA_BYTES = 16;
export const PLAIN_BYTES = FIELDS_AT + 120;
/** How many characters of an attempt's error are kept. */
export const ATTEMPT_ERROR_CHARS_MAX = 200;
/**
 * A power of two (core/spsc-ring.ts). The main thread drains ten times a second under load. So 100,000 plain
 * calls a second fit with up to five further quotas each (208 bytes): more than a listener can serve. Of
 * other calls fewer fit: 97,000 with one attempt and one further quota (216 bytes), 40,000 if that attempt
 * failed with a text of 100 characters, for which 300 bytes are reserved. Unused pages cost no memory.
 */
const RING_BYTES = 2 * 1024 * 1024;
/** Stands for an unknown or absent value in fields that are never negative. */
export const NOTHING = -1;

/** 32-bit words of an attempt, from its first byte. ATTEMPT_TEXT_BYTES: how many bytes its text has. */
export const ATTEMPT_UPSTREAM = 4;
export const ATTEMPT_MODEL = 5;
export const ATTEMPT_STATUS = 6;
export const ATTEMPT_CODE = 7;
export const ATTEMPT_TEXT_BYTES = 8;

// Fields of 64 bits of a call, in 64-bit words from its first field.
export const REQUEST = 0; // number of the request in its listener (float)
export const ENDED_MS = 1; // wall clock (float)
export const PROMPT = 2; // tokens (float, as the two that follow)
export const CACHED = 3;
export const COMPLETION = 4;
export const CHARGED = 5; // pico-units, signed
export const FIRST_TOKEN_MS = 6; // float; NOTHING if no stream has begun
export const DURATION_MS = 7; // float
export const ADMITTED_MS = 8; // float; NOTHING if the call was not admitted
export const BALANCE = 9; // pico-units left at admission (float)
// Fields of 32 bits of a call, in 32-bit words from its first field.
export const ACCOUNT = 20; // slot; here and in KEY, MODEL and UPSTREAM NOTHING if it is unknown
export const KEY = 21; // slot
export const MODEL = 22; // the model that the caller named: index into the catalogue
export const ANSWERED = 23; // the model whose price was charged; not written if SOURCE is NOTHING
export const UPSTREAM = 24; // slot of the upstream that was tried last
export const OUTCOME = 25; // index into OUTCOMES
export const SOURCE = 26; // index into USAGE_SOURCES; NOTHING if nothing was charged
export const FLAGS = 27; // STREAM to STORED; from bit DOOR_SHIFT on, the door's position in DOOR_NAMES
export const QUEUED_MS = 28; // waiting for the limits of upstreams
export const CACHE_WRITE = 29; // tokens, as the two that follow: always less than 2^31
export const CACHE_WRITE_1H = 30;
export const REASONING = 31;
export const MINUTE = 32; // requests of the minute left at admission; NOTHING if one of the quotas has them
export const IN_FLIGHT = 33; // calls in flight left at admission; NOTHING if no quota is known
export const PER_DAY = 34; // calls of the day left at admission
export const ATTEMPTS = 35; // how many attempts follow
export const QUOTAS = 36; // how many quotas follow, besides MINUTE, IN_FLIGHT, PER_DAY and BALANCE
export const ERROR_BYTES = 37; // of the error message that the caller received

// Fields of 64 bits of a plain call, in 64-bit words from its first field. Those without a word are as above.
export const PLAIN_REQUEST = 0;
export const PLAIN_ENDED_MS = 1;
export const PLAIN_CHARGED = 2;
export const PLAIN_BALANCE = 3;
// Fields of 32 bits of a plain call, in 32-bit words from its first field.
export const PLAIN_ACCOUNT = 8;
export const PLAIN_KEY = 9;
export const PLAIN_MODEL = 10;
export const PLAIN_ANSWERED = 11;
export const PLAIN_UPSTREAM = 12; // of the attempt too
export const PLAIN_FLAGS = 13; // with the source from bit SOURCE_SHIFT on
export const PLAIN_QUEUED_MS = 14;
export const PLAIN_PROMPT = 15;
export const PLAIN_CACHED = 16;
export const PLAIN_COMPLETION = 17;
export const PLAIN_CACHE_WRITE = 18;
export const PLAIN_CACHE_WRITE_1H = 19;
export const PLAIN_REASONING = 20;
export const PLAIN_DURATION = 21; // whole microseconds, as the four that follow
export const PLAIN_FIRST_TOKEN = 22;
export const PLAIN_ADMITTED = 23;
export const PLAIN_ATTEMPT_START = 24;
export const PLAIN_ATTEMPT_US = 25; // the duration of the attempt
export const PLAIN_IN_FLIGHT = 26;
export const PLAIN_PER_DAY = 27;
export const PLAIN_MINUTE = 28;
export const PLAIN_QUOTAS = 29; // how many further quotas follow

/**
 * Flags. STREAM: the caller asked for a stream. BEGUN: the response had begun, with 200. CACHE_HIT,
 * CACHE_MISS: the response cache was asked, and had the response or not.
 */
export const STREAM = 1;
export const BEGUN = 2;
export const CACHE_HIT = 4;
export const CACHE_MISS = 8;
/** The record is for the access log (LOGGED), for the call log (STORED), or for both. */
export const LOGGED = 16;
export const STORED = 32;
/** The door's position in DOOR_NAMES begins at this bit of the flags. */
export const DOOR_SHIFT = 8;

/** In the flags of a plain call the door has one byte, and the source all bits above that byte. */
export const SOURCE_SHIFT = 16;
export const DOOR_MASK = 255;
/** The greatest number of a 32-bit field; a call with a greater one is not a plain call. */
export const PLAIN_NUMBER_MAX = 2 ** 31 - 1;

/** Words of `dropped`. DROPPED: records for the call log that were dropped because the ring was full. */
export const DROPPED = 0;
/** Rejected calls that were not stored because there were too many within a second. */
export const UNSTORED = 1;
/** Records that only the access log wanted, dropped because the ring was full. */
export const DROPPED_LOG_ONLY = 2;
const DROPPED_WORDS = 3;

/** A listener gets its CallRingBuffer in its `workerData`, and so does the listener that replaces it. */
export interface CallRingBuffer {
  readonly ring: SharedArrayBuffer;
  /** 32-bit words DROPPED, UNSTORED and DROPPED_LOG_ONLY, modulo 2^32. Only the listener adds. */
  readonly dropped: SharedArrayBuffer;
}

export function createCallRing(): CallRingBuffer {
  return {
    ring: createSpscRing(RING_BYTES),
    dropped: new SharedArrayBuffer(DROPPED_WORDS * Int32Array.BYTES_PER_ELEMENT),
  };
}

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

/** Which logs want the call: `log` is the access log, `store` the call log on disk. */
export interface WantedLogs {
  readonly log: boolean;
  readonly store: boolean;
}

export interface EndedCall {
  /** The listener's count, which is in the request's id in base 36: `req_…-1c`. */
  readonly request: number;
  /** The door that the call used: index in DOOR_NAMES. */
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
  /** The error message that the caller received; empty if none. */
  readonly error: string;
}

export interface EndedUsage extends TokenCounts {
  /** The model that served the call, whose price was charged: index in the catalogue. */
  readonly answered: number;
  /** Who counted the tokens: index in USAGE_SOURCES. */
  readonly source: number;
  readonly charged: PicoUnits;
}
