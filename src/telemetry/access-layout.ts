/**
 * The layout of the access log's ring, one a listener; both ends open it through this file: see access-ring.ts.
 *
 *     byte 0   appended   listener      records ever written, modulo 2^32
 *         64   drained    main thread   records ever taken, modulo 2^32
 *        128   dropped    listener      records ever dropped because the ring was full, modulo 2^32
 *        192   records    listener      RECORDS times 88 bytes:
 *
 *     byte  bits  field
 *        0    64  request      number of the request in its listener (float)
 *        8    64  endedMs      wall clock (float)
 *       16    64  prompt       tokens (float, as the two that follow)
 *       24    64  cached
 *       32    64  completion
 *       40    64  charged      pico-units, signed
 *       48    64  firstTokenMs milliseconds (float), NOTHING where no stream has begun
 *       56    64  durationMs   milliseconds (float)
 *       64    32  account      slot; NOTHING where the caller is not known, as in the three that follow
 *       68    32  key          slot
 *       72    32  model        index into the catalogue
 *       76    32  upstream     slot of the upstream that was tried last
 *       80    32  outcome, source, flags: indices into OUTCOMES and of the source of the tokens, 8 bits each; see STREAM
 *       84    32  -
 */
import type { AccountIndex, KeyIndex, PicoUnits, WallMs } from '../core/units.js';
import type { Outcome } from './metrics-layout.js';

/** The main thread takes them ten times a second: 160,000 calls a second fit, more than a listener can refuse. A power of two. */
export const RECORDS = 16_384;

/** Words of the head in the view of 32-bit words. */
export const APPENDED = 0;
export const DRAINED = 16;
export const DROPPED = 32;
const HEAD_BYTES = 192;
const RECORD_BYTES = 88;

/** The records in the view of 64-bit words, and the fields in one. */
export const HEAD_WORDS64 = HEAD_BYTES / 8;
export const RECORD_WORDS64 = RECORD_BYTES / 8;
export const REQUEST = 0;
export const ENDED_MS = 1;
export const PROMPT = 2;
export const CACHED = 3;
export const COMPLETION = 4;
export const CHARGED = 5;
export const FIRST_TOKEN_MS = 6;
export const DURATION_MS = 7;

/** The records in the view of 32-bit words, and the fields in one. */
export const HEAD_WORDS32 = HEAD_BYTES / 4;
export const RECORD_WORDS32 = RECORD_BYTES / 4;
export const ACCOUNT = 16;
export const KEY = 17;
export const MODEL = 18;
export const UPSTREAM = 19;
export const OUTCOME = 20;
export const SOURCE_SHIFT = 8;
export const FLAGS_SHIFT = 16;
export const BYTE_MASK = 255;
/** Flags: the caller asked for a stream; the response had begun, with 200, before the call ended otherwise. */
export const STREAM = 1;
export const BEGUN = 2;

export const NOTHING = -1;

export interface AccessRecord {
  /** The count part of the request's identifier. */
  readonly request: number;
  readonly endedMs: WallMs;
  readonly outcome: Outcome;
  /** Whether a part of the response had been given to the caller. */
  readonly begun: boolean;
  readonly stream: boolean;
  readonly account: AccountIndex | undefined;
  readonly key: KeyIndex | undefined;
  readonly model: number | undefined;
  readonly upstream: number | undefined;
  readonly usage: AccessUsage | undefined;
  readonly firstTokenMs: number | undefined;
  readonly durationMs: number;
}

/** Of a call that was charged. */
export interface AccessUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Index into `USAGE_SOURCES`. */
  readonly source: number;
  readonly charged: PicoUnits;
}

/** Hand it to a thread in its `workerData`. Untouched pages cost no memory. */
export type AccessBuffer = SharedArrayBuffer;

export function createAccessRing(): AccessBuffer {
  return new SharedArrayBuffer(HEAD_BYTES + RECORDS * RECORD_BYTES);
}
