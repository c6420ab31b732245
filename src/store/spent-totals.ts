/**
 * What each account has spent according to the journal: the figures that go to disk. Main thread.
 *
 * The ledger's own words are ahead of them by what is still in the journal. Were those written instead, the money on disk
 * would not agree with the usage on disk. 16 bytes an account, and pages that are never touched cost nothing.
 */
import { invariant } from '../core/errors.js';
import { type AccountIndex, asPicoUnits, type PicoUnits } from '../core/units.js';
import { CREDITED_PICO_UNITS_MAX, uncoveredAfter } from '../ledger/balance.js';
import type { SpendingRecord } from '../registry/account-record.js';

/** What the ledger counts of an account, at one moment. */
export type AccountCounts = Pick<SpendingRecord, 'dayNumber' | 'dayCalls' | 'minuteUsed' | 'takenMs'>;

/** Where the money of the rows comes from: this file's, or shared-totals.ts's where several gateways work on the store. */
export interface SpendingTotals {
  /** Amounts are negative where a charge is taken back. */
  add(account: AccountIndex, charged: PicoUnits, uncovered: PicoUnits): void;
  /** As it is to be on disk; in the transaction that writes it. Throws what the store throws. */
  recordOf(account: AccountIndex, counts: AccountCounts): SpendingRecord;
  /** What `recordOf` told last of the account is on disk; absent where a total may be written as often as one likes. */
  noteWritten?(account: AccountIndex): void;
}

export class SpentTotals implements SpendingTotals {
  readonly #spent: BigInt64Array;
  readonly #uncovered: BigInt64Array;

  constructor(accountsMax: number) {
    this.#spent = new BigInt64Array(accountsMax);
    this.#uncovered = new BigInt64Array(accountsMax);
  }

  /** As the store has it, at start. */
  open(account: AccountIndex, spent: PicoUnits, uncovered: PicoUnits): void {
    this.#spent[account] = spent;
    this.#uncovered[account] = uncovered;
  }

  add(account: AccountIndex, charged: PicoUnits, uncovered: PicoUnits): void {
    const spent = this.#spent[account]! + charged;
    invariant(
      spent >= 0n && spent <= CREDITED_PICO_UNITS_MAX,
      'what an account has spent is within its bound',
    );
    this.#spent[account] = spent;
    this.#uncovered[account] = uncoveredAfter(this.#uncovered[account]!, uncovered);
  }

  recordOf(account: AccountIndex, counts: AccountCounts): SpendingRecord {
    // Field by field: spread, a row of a flush took a fifth longer.
    return {
      spent: this.spentOf(account),
      uncovered: this.uncoveredOf(account),
      dayNumber: counts.dayNumber,
      dayCalls: counts.dayCalls,
      minuteUsed: counts.minuteUsed,
      takenMs: counts.takenMs,
    };
  }

  spentOf(account: AccountIndex): PicoUnits {
    return asPicoUnits(this.#spent[account]!);
  }

  uncoveredOf(account: AccountIndex): PicoUnits {
    return asPicoUnits(this.#uncovered[account]!);
  }
}

/*
 * What this gateway adds to the totals of accounts that several gateways add to. Main thread.
 *
 * A row on disk is the sum over all of them, so it is read in the transaction that writes it. 40 bytes an account, and pages
 * that are never touched cost nothing.
 */

interface Day {
  readonly dayNumber: number;
  readonly dayCalls: number;
}

export class SharedTotals implements SpendingTotals {
  readonly #findSpending: (account: AccountIndex) => SpendingRecord | undefined;
  readonly #onReversed: (account: AccountIndex, amount: PicoUnits) => void;
  /** Charged by this gateway, ever; and what of it is on disk. */
  readonly #charged: BigInt64Array;
  readonly #written: BigInt64Array;
  /** The day and its calls, of this gateway, that are on disk. */
  readonly #dayNumbers: Int32Array;
  readonly #dayCalls: Int32Array;
  readonly #uncovered = new Map<AccountIndex, bigint>();
  /** Of charges that were taken back, and are not on disk as such. */
  readonly #reversed = new Map<AccountIndex, bigint>();
  /** As in the rows that are being written. */
  readonly #writing = new Map<AccountIndex, Day>();

  /**
   * `findSpending` reads what is on disk, and in a transaction what is there at that moment. `onReversed` is told what of charges
   * is taken back on disk.
   */
  constructor(
    accountsMax: number,
    findSpending: (account: AccountIndex) => SpendingRecord | undefined,
    onReversed: (account: AccountIndex, amount: PicoUnits) => void,
  ) {
    this.#findSpending = findSpending;
    this.#onReversed = onReversed;
    this.#charged = new BigInt64Array(accountsMax);
    this.#written = new BigInt64Array(accountsMax);
    this.#dayNumbers = new Int32Array(accountsMax);
    this.#dayCalls = new Int32Array(accountsMax);
  }

  add(account: AccountIndex, charged: PicoUnits, uncovered: PicoUnits): void {
    this.#charged[account] = this.#charged[account]! + charged;
    if (charged < 0n) this.#reversed.set(account, (this.#reversed.get(account) ?? 0n) - charged);
    if (uncovered !== 0n) this.#uncovered.set(account, (this.#uncovered.get(account) ?? 0n) + uncovered);
  }

  recordOf(account: AccountIndex, counts: AccountCounts): SpendingRecord {
    const stored = this.#findSpending(account);
    const spent = (stored?.spent ?? 0n) + this.#charged[account]! - this.#written[account]!;
    invariant(
      spent >= 0n && spent <= CREDITED_PICO_UNITS_MAX,
      'what an account has spent is within its bound',
    );
    this.#writing.set(account, counts);
    return {
      ...counts,
      ...this.#dayAfter(account, counts, stored),
      spent: asPicoUnits(spent),
      uncovered: uncoveredAfter(stored?.uncovered ?? 0n, this.#uncovered.get(account) ?? 0n),
    };
  }

  noteWritten(account: AccountIndex): void {
    this.#written[account] = this.#charged[account]!;
    this.#uncovered.delete(account);
    const reversed = this.#reversed.get(account);
    if (reversed !== undefined) {
      this.#reversed.delete(account);
      this.#onReversed(account, asPicoUnits(reversed));
    }
    const day = this.#writing.get(account);
    if (day === undefined) return;
    this.#writing.delete(account);
    this.#dayNumbers[account] = day.dayNumber;
    this.#dayCalls[account] = day.dayCalls;
  }

  /** Of what this gateway has charged the account in its life, the part that is on disk. */
  writtenOf(account: AccountIndex): PicoUnits {
    return asPicoUnits(this.#written[account]!);
  }

  /** The row's day with what was called here since it was last written. A day that is past on disk is over for all. */
  #dayAfter(account: AccountIndex, { dayNumber, dayCalls }: Day, stored: Day | undefined): Day {
    const before = this.#dayNumbers[account] === dayNumber ? this.#dayCalls[account]! : 0;
    const since = dayCalls - before;
    if (stored === undefined || stored.dayNumber < dayNumber)
      return { dayNumber, dayCalls: Math.max(0, since) };
    if (stored.dayNumber > dayNumber) return { dayNumber: stored.dayNumber, dayCalls: stored.dayCalls };
    return { dayNumber, dayCalls: Math.max(0, stored.dayCalls + since) };
  }
}
