/**
 * The layout of the ledger's shared buffers; both the main thread and every listener open them through this file, and no
 * offset is written anywhere else. Any thread.
 *
 * The buffers are made once, at full capacity: the kernel gives a page when it is first touched, so a million accounts
 * cost nothing until they exist, and no thread ever has to be told of a new segment.
 *
 * One account, 256 bytes: four cache lines, so that a neighbour's calls never touch it.
 *
 *     byte  bits  field      written by                 meaning
 *        0    64  window     any thread (CAS)           tick, age and running count of the minute: see window.ts
 *        8    64  day        any thread (CAS)           day number << 32 | calls of that day: see day.ts
 *       16    64  credited   main thread                all money ever put in, less what was taken out again
 *       24    64  available  any thread (CAS, add)      what a new hold may take
 *       32    64  spent      any thread (add)           what settled calls have cost
 *       40    64  uncovered  any thread (CAS)           cost that the balance did not cover
 *       48    32  standing   main thread                index of the plan << 1 | 1 where the account is active
 *       52  51×32 marks      any thread (CAS)           the running count at the start of each of the last 51 ticks
 *
 * One reservation (a call in flight), 24 bytes:
 *
 *        0    32  state      owner, main thread (CAS)   free, held or settling: see reservation.ts
 *        4    32  account    owner, while not held      whose money it is
 *        8    32  day        owner, while not held      number of the day whose call it took
 *       12    32  -
 *       16    64  hold       owner, while not held      pico-units
 *
 * Calls in flight are one 32-bit word an account, added to and taken from by any thread.
 *
 * The dirty set is one bit an account, 32 to a word: see dirty-set.ts.
 */
import { ceilDiv } from '../core/units.js';
import { invariant } from '../core/errors.js';
import { ACCOUNTS_MAX, CALLS_IN_FLIGHT_MAX } from '../core/limits.js';

const ACCOUNT_BYTES = 256;
const RESERVATION_BYTES = 24;
export const ACCOUNTS_PER_DIRTY_WORD = 32;

/** Words of one account in the view of 64-bit words, and the fields in it. */
export const ACCOUNT_WORDS64 = ACCOUNT_BYTES / 8;
export const WINDOW = 0;
export const DAY = 1;
export const CREDITED = 2;
export const AVAILABLE = 3;
export const SPENT = 4;
export const UNCOVERED = 5;

/** Words of one account in the view of 32-bit words, and the fields in it. */
export const ACCOUNT_WORDS32 = ACCOUNT_BYTES / 4;
export const STANDING = 12;
export const MARKS = 13;
export const MARK_COUNT = ACCOUNT_WORDS32 - MARKS;

/** Words of one reservation in the view of 32-bit words, and the fields in it. */
export const RESERVATION_WORDS32 = RESERVATION_BYTES / 4;
export const STATE = 0;
export const ACCOUNT = 1;
export const DAY_NUMBER = 2;

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
}

/** What a thread sees of the buffers. */
export interface LedgerViews {
  readonly accounts64: BigInt64Array;
  readonly accounts32: Int32Array;
  readonly reservations64: BigInt64Array;
  readonly reservations32: Int32Array;
  readonly inFlight: Int32Array;
  readonly dirty: Int32Array;
}

/** Buffers for `accountsMax` accounts and `callsInFlightMax` calls, all zero: no account is active, every slot is free. */
export function createLedgerBuffers(capacity: {
  readonly accountsMax: number;
  readonly callsInFlightMax: number;
}): LedgerBuffers {
  const { accountsMax, callsInFlightMax } = capacity;
  invariant(accountsMax >= 1 && accountsMax <= ACCOUNTS_MAX, `accountsMax within 1..${ACCOUNTS_MAX}`);
  invariant(
    callsInFlightMax >= 1 && callsInFlightMax <= CALLS_IN_FLIGHT_MAX,
    `callsInFlightMax within 1..${CALLS_IN_FLIGHT_MAX}`,
  );
  return {
    accountsMax,
    callsInFlightMax,
    accounts: new SharedArrayBuffer(accountsMax * ACCOUNT_BYTES),
    reservations: new SharedArrayBuffer(callsInFlightMax * RESERVATION_BYTES),
    inFlight: new SharedArrayBuffer(accountsMax * Int32Array.BYTES_PER_ELEMENT),
    dirty: new SharedArrayBuffer(ceilDiv(accountsMax, ACCOUNTS_PER_DIRTY_WORD) * 4),
  };
}

export function openLedgerViews(buffers: LedgerBuffers): LedgerViews {
  return {
    accounts64: new BigInt64Array(buffers.accounts),
    accounts32: new Int32Array(buffers.accounts),
    reservations64: new BigInt64Array(buffers.reservations),
    reservations32: new Int32Array(buffers.reservations),
    inFlight: new Int32Array(buffers.inFlight),
    dirty: new Int32Array(buffers.dirty),
  };
}
