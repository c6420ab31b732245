/**
 * The layout of the journal, a ring of ended calls from each listener to the main thread. journal.ts writes
 * and reads rings by it; gateway/accounting-base.ts creates them in the main thread.
 *
 *     byte 0   appended   listener      records ever written, modulo 2^32
 *         64   drained    main thread   records ever taken into the memory of the accounting, modulo 2^32
 *        128   committed  main thread   records that are on disk, modulo 2^32
 *        132   rejecting  main thread   1 while the store cannot be written and no new call is admitted
 *        192   records    listener      `capacity` times 104 bytes:
 *
 *     byte  bits  field
 *        0    64  request      number of the request in its listener (float)
 *        8    64  endedMs      wall clock (float)
 *       16    64  prompt       tokens (float, as the five that follow: a count up to 2^53)
 *       24    64  cached
 *       32    64  cacheWrite
 *       40    64  cacheWrite1h
 *       48    64  completion
 *       56    64  reasoning
 *       64    64  charged      pico-units, signed
 *       72    64  uncovered    pico-units, signed
 *       80    32  account      slot
 *       84    32  key          slot
 *       88    32  model        whose price was charged: index into the catalogue
 *       92    32  requested    the model that the caller named, likewise
 *       96    32  outcome in the low 8 bits (index into JOURNAL_OUTCOMES), source above (into USAGE_SOURCES)
 *      100    32  durationMs
 *
 * Must hold: the constants below follow this table, and an index into JOURNAL_OUTCOMES fits 8 bits. The ring
 * is in memory alone, so a new version may change the layout. Test: test/unit/ledger/journal.test.ts (every
 * field is read as it was written).
 */
import { ERROR_CODES, invariant } from '../core/errors.js';
import { CALLS_IN_FLIGHT_MAX, JOURNAL_RECORDS_MIN } from '../core/limits.js';
import type { TokenCounts } from '../core/token-counts.js';
import type { AccountIndex, KeyIndex, PicoUnits, WallMs } from '../core/units.js';

/**
 * `reversed`: the listener takes back the charge of an earlier record of the call, so amounts and counts of
 * tokens are negative. `collected`: the main thread charges what an earlier record of the call left
 * uncovered, so `uncovered` is negative. Such a record is in no ring: sharing/uncovered-charges.ts makes it,
 * and it goes to the flush directly. All other words say how a call ended.
 */
export const JOURNAL_OUTCOMES = ['served', 'reversed', 'collected', ...ERROR_CODES] as const;
export type JournalOutcome = (typeof JOURNAL_OUTCOMES)[number];

/** Fields of the head, in 32-bit words. Each side's words have cache lines of their own, hence the gaps. */
export const APPENDED = 0;
export const DRAINED = 16;
export const COMMITTED = 32;
export const REJECTING = 33;
const HEAD_BYTES = 192;
const RECORD_BYTES = 104;

/** Where the records begin, the length of a record, and its fields: in 64-bit words. */
export const HEAD_WORDS64 = HEAD_BYTES / 8;
export const RECORD_WORDS64 = RECORD_BYTES / 8;
export const REQUEST = 0;
export const ENDED_MS = 1;
export const PROMPT = 2;
export const CACHED = 3;
export const CACHE_WRITE = 4;
export const CACHE_WRITE_1H = 5;
export const COMPLETION = 6;
export const REASONING = 7;
export const CHARGED = 8;
export const UNCOVERED = 9;

/** Where the records begin, the length of a record, and its fields: in 32-bit words. */
export const HEAD_WORDS32 = HEAD_BYTES / 4;
export const RECORD_WORDS32 = RECORD_BYTES / 4;
export const ACCOUNT = 20;
export const KEY = 21;
export const MODEL = 22;
export const REQUESTED = 23;
export const OUTCOME = 24;
export const DURATION_MS = 25;
export const SOURCE_SHIFT = 8;
/** The bits of `outcome`. */
export const OUTCOME_MASK = 255;

invariant(JOURNAL_OUTCOMES.length <= OUTCOME_MASK, 'an outcome fits its byte');

export interface JournalRecord extends TokenCounts {
  /** The number of the request in its listener, a part of its identifier. */
  readonly request: number;
  readonly endedMs: WallMs;
  /** A part of what the account was credited: at most CREDITED_PICO_UNITS_MAX, which is below 2^63. */
  readonly charged: PicoUnits;
  /** At most the same: request/settle.ts lowers a larger one. */
  readonly uncovered: PicoUnits;
  readonly account: AccountIndex;
  readonly key: KeyIndex;
  /** The model whose price was charged: the model that responded. */
  readonly model: number;
  /** The model that the caller named. */
  readonly requested: number;
  readonly outcome: JournalOutcome;
  /** Where the tokens come from: an index into USAGE_SOURCES (core/token-counts.ts). */
  readonly source: number;
  readonly durationMs: number;
}

/** One listener's ring. A plain record, because `workerData` of a thread is copied without methods. */
export interface JournalBuffer {
  readonly shared: SharedArrayBuffer;
  readonly capacity: number;
}

/**
 * An empty ring for a listener with at most `callsMax` calls in flight. Its capacity is a power of two, at
 * least JOURNAL_RECORDS_MIN and twice the calls, because with `durability: commit` a call may append two
 * records: its charge, and what takes the charge back. So all fit even if the main thread drains none of them
 * while the calls end.
 */
export function createJournalBuffer(callsMax: number): JournalBuffer {
  invariant(callsMax >= 0 && callsMax <= CALLS_IN_FLIGHT_MAX, `callsMax within 0..${CALLS_IN_FLIGHT_MAX}`);
  const capacity = 2 ** Math.ceil(Math.log2(Math.max(JOURNAL_RECORDS_MIN, 2 * callsMax)));
  return createRing(capacity);
}

/** An empty ring of `capacity` records, a power of two. Tests make small ones. */
export function createRing(capacity: number): JournalBuffer {
  invariant(Number.isInteger(Math.log2(capacity)), 'the capacity is a power of two, which divides 2^32');
  return { shared: new SharedArrayBuffer(HEAD_BYTES + capacity * RECORD_BYTES), capacity };
}
