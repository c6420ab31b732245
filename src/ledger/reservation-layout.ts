/**
 * The layout of a reservation, the record of a call in flight: one for each call slot, 72 bytes, of which 13
 * are unused. reservations.ts alone reads and writes them; layout.ts makes their buffer, in memory alone.
 *
 * The owner is the listener that has the call slot. It writes all fields but the state before the record is
 * held. A call that took of no scope but its account leaves the fields from TOKENS on as they were. Calls a
 * day are counted by the day in UTC+8, as the specification wants; all other quotas of a day or month by
 * `quota_timezone`. reservations.ts has NO_DAY and SCOPES_MAX:
 *
 *     byte  bits  field               written by        meaning
 *        0    32  STATE               owner, main (CAS) free, held or settling: reservations.ts
 *        4    32  ACCOUNT                               whose money it is
 *        8    32  DAY_NUMBER                            UTC+8 day whose call it took; NO_DAY: none
 *       12    32  SCOPE_COUNT                           how many scopes have bits in TAKEN_MASKS; 0: none
 *       16    64  HOLD                                  pico-units
 *       24    64  TOKENS                                held; a float, which is read without a BigInt
 *       32    32  CALL_KEY                              index + 1 of the key, or 0
 *       36    32  CALL_MODEL                            index + 1 of the account's rule for the model, or 0
 *       40    32  CALL_GROUP                            index + 1 of the account's own group, or 0
 *       44    32  CALENDAR_DAY                          day and month of which the call took,
 *       48    32  CALENDAR_MONTH                        in `quota_timezone`
 *       52   7×8  TAKEN_MASKS                           SCOPES_MAX bytes, a bit a quota
 *
 * Must hold: no two fields share a byte (test/unit/ledger/layout.test.ts).
 */
export const RESERVATION_BYTES = 72;

/** Length and fields of a reservation, in 32-bit words. */
export const RESERVATION_WORDS32 = RESERVATION_BYTES / 4;
export const STATE = 0;
export const ACCOUNT = 1;
export const DAY_NUMBER = 2;
export const SCOPE_COUNT = 3;
export const CALL_KEY = 8;
export const CALL_MODEL = 9;
export const CALL_GROUP = 10;
export const CALENDAR_DAY = 11;
export const CALENDAR_MONTH = 12;
export const TAKEN_MASKS = 13;

/** Length and field of a reservation, in 64-bit words. */
export const RESERVATION_WORDS64 = RESERVATION_BYTES / 8;
export const HOLD = 2;
export const TOKENS = 3;
