/**
 * The layout of the ledger's shared buffers; both the main thread and every listener open them through this
 * file, and no offset is written anywhere else. Any thread.
 *
 * The buffers are made once, at full capacity: the kernel gives a page when it is first touched, so a million
 * accounts cost nothing until they exist, and no thread ever has to be told of a new segment.
 *
 * One account, 256 bytes: four cache lines, so that a neighbour's calls never touch it.
 *
 *     byte  bits  field      written by                 meaning
 *        0    64  window     any thread (CAS)           tick, age and count of the minute: window.ts
 *        8    64  day        any thread (CAS)           day number << 32 | calls of that day: see day.ts
 *       16    64  credited   main thread                all money ever put in, less what was taken out again
 *       24    64  available  any thread (CAS, add)      what a new hold may take
 *       32    64  spent      any thread (add)           what settled calls have cost
 *       40    64  uncovered  any thread (CAS)           cost that the balance did not cover
 *       48    32  standing   main thread                index of the plan << 1 | 1 if it is active
 *       52  51×32 marks      any thread (CAS)           count at the start of each of the last 51 ticks
 *
 * One reservation (a call in flight), 24 bytes:
 *
 *        0    32  state      owner, main thread (CAS)   free, held or settling: see calls.ts
 *        4    32  account    owner, while not held      whose money it is
 *        8    32  day        owner, while not held      number of the day whose call it took
 *       12    32  day key    owner, while not held      index + 1 of the key whose day it took too, or 0
 *       16    64  hold       owner, while not held      pico-units
 *
 * Calls in flight are one 32-bit word an account, added to and taken from by any thread.
 *
 * The dirty set is one bit an account, 32 to a word: see dirty-set.ts.
 *
 * One key with limits of its own, 256 bytes, so that its minute and its day are counted by the same code as
 * an account's; a key without limits has its bytes too, and they are never touched:
 *
 *        0    64  window     any thread (CAS)           as an account's
 *        8    64  day        any thread (CAS)           as an account's
 *       16    32  minute     main thread                requests a minute; 0: as many as its account
 *       20    32  calls      main thread                calls a day; 0: as many as its account
 *       24   ...  -
 *       52  51×32 marks      any thread (CAS)           as an account's
 *
 * Keys have a dirty set of their own: whose use or counts have changed.
 *
 * If limits are shared with other processes, a record holds what its process was granted, and there are no
 * marks (leases.ts):
 *
 *        0    64  window     any thread (CAS)           expiry in ms << 20 | permits left: leased-window.ts
 *        8    64  day        any thread (CAS)           day number << 32 | calls left: leased-day.ts
 *       16    64  credited   main thread                all money granted here, less what was given back
 *       24..47     -                                     as above, of this life of the process
 *       56    64  granted day main thread                day number << 32 | calls of it that were granted
 *       64    64  low money  main thread                tell the main thread if less than this is left
 *       72    64  elsewhere  main thread                pico-units that the coordinator had left, as told
 *       80    64  free       main thread                monotonic ms when a permit of the minute is free
 *       88    64  refused    main thread                monotonic ms before which asking for it is no use
 *       96    32  granted slots main thread                how many calls may be in flight here
 *      100  3×32  low        main thread                of permits, calls of the day, slots: as low money
 *      112    32  remaining  main thread                permits that the coordinator had left, as told
 */
import { ceilDiv } from '../core/units.js';
import { invariant } from '../core/errors.js';
import { ACCOUNTS_MAX, CALLS_IN_FLIGHT_MAX, KEYS_MAX } from '../core/limits.js';

/** Of an account and of a key. */
const COUNTED_BYTES = 256;
const RESERVATION_BYTES = 24;
export const DIRTY_BITS_PER_WORD = 32;

/** Words of one account, or one key, in the view of 64-bit words, and the fields in it. */
export const COUNTED_WORDS64 = COUNTED_BYTES / 8;
export const WINDOW = 0;
export const DAY = 1;
export const CREDITED = 2;
export const AVAILABLE = 3;
export const SPENT = 4;
export const UNCOVERED = 5;

/** Words of one account, or one key, in the view of 32-bit words, and the fields in it. */
export const COUNTED_WORDS32 = COUNTED_BYTES / 4;
export const STATUS = 12;
export const MARKS = 13;
export const MARK_COUNT = COUNTED_WORDS32 - MARKS;

/** Fields of what was granted, of accounts and keys: in the place of the marks. */
export const GRANTED_DAY = 7;
export const LOW_MONEY = 8;
export const MONEY_HELD_BY_OTHERS = 9;
export const MINUTE_FREE_MS = 10;
export const MINUTE_REFUSED_UNTIL_MS = 11;
export const GRANTED_SLOTS = 24;
export const LOW_MINUTE = 25;
export const LOW_DAY = 26;
export const LOW_SLOTS = 27;
export const MINUTE_HELD_BY_OTHERS = 28;
invariant(
  GRANTED_DAY * 2 > STATUS && GRANTED_SLOTS === 2 * (MINUTE_REFUSED_UNTIL_MS + 1),
  'fields do not overlap',
);

/** Fields of one key in the view of 32-bit words; the others are an account's. */
export const KEY_REQUESTS_PER_MINUTE = 4;
export const KEY_CALLS_PER_DAY = 5;

/** Words of one reservation in the view of 32-bit words, and the fields in it. */
export const RESERVATION_WORDS32 = RESERVATION_BYTES / 4;
export const STATE = 0;
export const ACCOUNT = 1;
export const DAY_NUMBER = 2;
export const DAY_KEY = 3;

/** Words of one reservation in the view of 64-bit words, and the field in it. */
export const RESERVATION_WORDS64 = RESERVATION_BYTES / 8;
export const HOLD = 2;

/** A plain record: hand it to a thread in its `workerData`. */
export interface LedgerBuffers {
  readonly accountsMax: number;
  readonly callsInFlightMax: number;
  readonly accounts: SharedArrayBuffer;
  readonly reservations: SharedArrayBuffer;
  readonly inFlight: SharedArrayBuffer;
  readonly dirty: SharedArrayBuffer;
  readonly keysMax: number;
  readonly keys: SharedArrayBuffer;
  readonly dirtyKeys: SharedArrayBuffer;
  /**
   * If limits are shared with other processes: how much the coordinator's calendar is ahead of this
   * host's.
   */
  readonly calendar: SharedArrayBuffer | undefined;
}

/** What minutes and days are counted in: the records of accounts, or those of keys. */
export interface CountedViews {
  readonly records64: BigInt64Array;
  readonly records32: Int32Array;
  readonly dirty: Int32Array;
}

/** What a thread sees of the buffers. */
export interface LedgerViews {
  readonly accounts: CountedViews;
  readonly keys: CountedViews;
  readonly reservations64: BigInt64Array;
  readonly reservations32: Int32Array;
  readonly inFlight: Int32Array;
}

/**
 * Buffers for `accountsMax` accounts, `callsInFlightMax` calls and `keysMax` keys (none if it is left
 * out), all zero: no account is active, every slot is free, no key has limits.
 */
export function createLedgerBuffers(capacity: {
  readonly accountsMax: number;
  readonly callsInFlightMax: number;
  readonly keysMax?: number;
  /** Limits are shared with other processes: records hold leases. */
  readonly shared?: boolean;
}): LedgerBuffers {
  const { accountsMax, callsInFlightMax, keysMax = 0, shared = false } = capacity;
  invariant(accountsMax >= 1 && accountsMax <= ACCOUNTS_MAX, `accountsMax within 1..${ACCOUNTS_MAX}`);
  invariant(
    callsInFlightMax >= 1 && callsInFlightMax <= CALLS_IN_FLIGHT_MAX,
    `callsInFlightMax within 1..${CALLS_IN_FLIGHT_MAX}`,
  );
  invariant(keysMax >= 0 && keysMax <= KEYS_MAX, `keysMax within 0..${KEYS_MAX}`);
  return {
    accountsMax,
    callsInFlightMax,
    keysMax,
    accounts: new SharedArrayBuffer(accountsMax * COUNTED_BYTES),
    reservations: new SharedArrayBuffer(callsInFlightMax * RESERVATION_BYTES),
    inFlight: new SharedArrayBuffer(accountsMax * Int32Array.BYTES_PER_ELEMENT),
    dirty: new SharedArrayBuffer(ceilDiv(accountsMax, DIRTY_BITS_PER_WORD) * 4),
    keys: new SharedArrayBuffer(keysMax * COUNTED_BYTES),
    dirtyKeys: new SharedArrayBuffer(ceilDiv(keysMax, DIRTY_BITS_PER_WORD) * 4),
    calendar: shared ? new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT) : undefined,
  };
}

export function openLedgerViews(buffers: LedgerBuffers): LedgerViews {
  return {
    accounts: countedViews(buffers.accounts, buffers.dirty),
    keys: countedViews(buffers.keys, buffers.dirtyKeys),
    reservations64: new BigInt64Array(buffers.reservations),
    reservations32: new Int32Array(buffers.reservations),
    inFlight: new Int32Array(buffers.inFlight),
  };
}

function countedViews(records: SharedArrayBuffer, dirty: SharedArrayBuffer): CountedViews {
  return {
    records64: new BigInt64Array(records),
    records32: new Int32Array(records),
    dirty: new Int32Array(dirty),
  };
}
