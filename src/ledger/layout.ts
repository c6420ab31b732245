/**
 * The layout of the ledger's shared buffers. The main thread and every listener open them through this file,
 * and no other file has an offset. Any thread.
 *
 * The buffers are made once, at full capacity. The kernel provides a page when it is first touched, so a
 * million accounts cost nothing until they exist, and no thread has to learn of a new segment.
 *
 * One account, 256 bytes: four cache lines, so that a neighbour's calls never touch them.
 *
 *     byte  bits  field      written by                 meaning
 *        0    64  window     any thread (CAS)           tick, age and count of the minute: window.ts
 *        8    64  day        any thread (CAS)           day number << 32 | calls of that day: day.ts
 *       16    64  credited   main thread                all money ever put in, less what was taken out again
 *       24    64  available  any thread (CAS, add)      what a new hold may take
 *       32    64  spent      any thread (add)           what settled calls have cost
 *       40    64  uncovered  any thread (CAS)           cost that the balance did not cover
 *       48    32  status     main thread                index of the plan << 1 | 1 if it is active
 *       52  51×32 marks      any thread (CAS)           count at the start of each of the last 51 ticks
 *
 * One reservation (a call in flight), 24 bytes; its owner is the listener that has the call slot:
 *
 *        0    32  state      owner, main thread (CAS)   free, held or settling: calls.ts
 *        4    32  account    owner, while not held      whose money it is
 *        8    32  day        owner, while not held      number of the day whose call it took
 *       12    32  day key    owner, while not held      index + 1 of the key whose day it took too, or 0
 *       16    64  hold       owner, while not held      pico-units
 *
 * Calls in flight are one 32-bit word an account. Any thread adds and subtracts.
 *
 * The dirty set is one bit an account, 32 to a word: dirty-set.ts.
 *
 * One key with limits of its own, 256 bytes, so that the code that counts an account's minute and day also
 * counts the key's. A key without limits has its bytes too, but no thread touches them:
 *
 *        0    64  window     any thread (CAS)           as an account's
 *        8    64  day        any thread (CAS)           as an account's
 *       16    32  minute     main thread                requests a minute; 0: as many as its account
 *       20    32  calls      main thread                calls a day; 0: as many as its account
 *       24   ...  -
 *       52  51×32 marks      any thread (CAS)           as an account's
 *
 * Keys have a dirty set of their own, of those whose counts or time of use have changed.
 *
 * If limits are shared with other processes, a record holds what the coordinator granted to this process, and
 * has no marks. leases.ts writes it:
 *
 *        0    64  window     any thread (CAS)           expiry in ms << 20 | permits left: leased-window.ts
 *        8    64  day        any thread (CAS)           day number << 32 | calls left: leased-stock.ts
 *       16    64  credited   main thread                all money granted here, less what was given back
 *       24..47     -                                    as above, since this process started
 *       56    64  granted day   main thread             day number << 32 | calls of it that were granted
 *       64    64  low money     main thread             ask for more if less than this is left
 *       72    64  others' money main thread             pico-units left at the coordinator, as reported
 *       80    64  free          main thread             monotonic ms when a permit of the minute is free
 *       88    64  rejected      main thread             monotonic ms before which asking for it is no use
 *       96    32  granted slots main thread             how many calls may be in flight here
 *      100  3×32  low           main thread             of permits, calls of the day, slots: as low money
 *      112    32  others' min.  main thread             permits left at the coordinator, as reported
 */
import { ceilDiv } from '../core/units.js';
import { invariant } from '../core/errors.js';
import { ACCOUNTS_MAX, CALLS_IN_FLIGHT_MAX, KEYS_MAX } from '../core/limits.js';

/** Bytes of the record of an account or of a key. */
const COUNTED_BYTES = 256;
const RESERVATION_BYTES = 24;
export const DIRTY_BITS_PER_WORD = 32;

/** Length and fields of the record of an account or a key, in 64-bit words. */
export const COUNTED_WORDS64 = COUNTED_BYTES / 8;
export const WINDOW = 0;
export const DAY = 1;
export const CREDITED = 2;
export const AVAILABLE = 3;
export const SPENT = 4;
export const UNCOVERED = 5;

/** Length and fields of the record of an account or a key, in 32-bit words. */
export const COUNTED_WORDS32 = COUNTED_BYTES / 4;
export const STATUS = 12;
export const MARKS = 13;
export const MARK_COUNT = COUNTED_WORDS32 - MARKS;

/**
 * Fields of what was granted, in place of the marks: first in 64-bit words, from GRANTED_SLOTS on in 32-bit
 * words.
 */
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

/** Further fields of a key, in 32-bit words. */
export const KEY_REQUESTS_PER_MINUTE = 4;
export const KEY_CALLS_PER_DAY = 5;

/** Length and fields of a reservation, in 32-bit words. */
export const RESERVATION_WORDS32 = RESERVATION_BYTES / 4;
export const STATE = 0;
export const ACCOUNT = 1;
export const DAY_NUMBER = 2;
export const DAY_KEY = 3;

/** Length and field of a reservation, in 64-bit words. */
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
   * Milliseconds by which the coordinator's calendar is ahead of the host's; undefined if limits are not
   * shared.
   */
  readonly calendar: SharedArrayBuffer | undefined;
}

/** Views of the records of accounts, or of those of keys. Minutes and days are counted in them. */
export interface CountedViews {
  readonly records64: BigInt64Array;
  readonly records32: Int32Array;
  readonly dirty: Int32Array;
}

/** A thread's views of the buffers. */
export interface LedgerViews {
  readonly accounts: CountedViews;
  readonly keys: CountedViews;
  readonly reservations64: BigInt64Array;
  readonly reservations32: Int32Array;
  readonly inFlight: Int32Array;
}

/**
 * Buffers for `accountsMax` accounts, `callsInFlightMax` calls and `keysMax` keys (none by default), all
 * zero: no account is active, every slot is free, no key has limits.
 */
export function createLedgerBuffers(capacity: {
  readonly accountsMax: number;
  readonly callsInFlightMax: number;
  readonly keysMax?: number;
  /** Whether limits are shared with other processes; records then hold what was granted. */
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
