/**
 * Sums up what each account has spent according to the journals: the amounts that go to disk, in the
 * account's row (SpendingRecord). flush.ts adds to them on the main thread, by the interface FlushedTotals.
 * SpentTotals is for a gateway that alone writes the rows (gateway/accounting.ts), SharedSpentTotals for
 * several gateways that add to the rows (gateway/shared-accounting.ts). 16 bytes an account (24 if shared);
 * memory pages that are never touched cost nothing.
 *
 * Must hold:
 * - Amounts come from the journals, as usage on disk does: the ledger's words also have what is still in them
 *   (test/unit/store/audit.test.ts).
 * - Between `recordOf` and `recordWritten` of an account nothing is added to it, or the amount would count as
 *   written. flush.ts writes in one event-loop turn, and finds out whether a commit that failed is on disk
 *   before it adds anything (test/unit/store/shared-books.test.ts).
 */
import { invariant } from '../core/errors.js';
import { type AccountIndex, asPicoUnits, type PicoUnits } from '../core/units.js';
import { CREDITED_PICO_UNITS_MAX, uncoveredAfter } from '../ledger/balance.js';
import type { DayCount } from '../ledger/day.js';
import type { SpendingRecord } from '../registry/account-record.js';
import { type CountsByPeriod, mergedCounts } from './shared-counts.js';

/** The part of a row that is not money: counts of the ledger, and when they were taken. */
type LedgerCounts = Pick<SpendingRecord, 'dayNumber' | 'dayCalls' | 'minuteUsed' | 'takenMs'>;

/** The totals, as a flush uses them. */
export interface FlushedTotals {
  /** Adds what a call was charged; amounts are negative if a charge is taken back. */
  add(account: AccountIndex, charged: PicoUnits, uncovered: PicoUnits): void;
  /**
   * Returns the row as it is to be on disk. Call in the transaction that writes the row; throws what the
   * store throws. If the transaction fails, the next one calls `recordOf` again, and no amount is lost.
   */
  recordOf(account: AccountIndex, counts: LedgerCounts): SpendingRecord;
  /** Call when the row that `recordOf` returned last is on disk. Absent if rows are absolute totals. */
  recordWritten?(account: AccountIndex): void;
}

/** The amounts in memory are absolute totals, so a row may be written again. */
export class SpentTotals implements FlushedTotals {
  readonly #spent: BigInt64Array;
  readonly #uncovered: BigInt64Array;

  constructor(accountsMax: number) {
    this.#spent = new BigInt64Array(accountsMax);
    this.#uncovered = new BigInt64Array(accountsMax);
  }

  /** Sets what the store has at the start. Recovery calls it, before the first `add`. */
  restore(account: AccountIndex, spent: PicoUnits, uncovered: PicoUnits): void {
    this.#spent[account] = spent;
    this.#uncovered[account] = uncovered;
  }

  add(account: AccountIndex, charged: PicoUnits, uncovered: PicoUnits): void {
    const spent = this.#spent[account]! + charged;
    invariant(spent >= 0n && spent <= CREDITED_PICO_UNITS_MAX, 'what is spent is within its bound');
    this.#spent[account] = spent;
    this.#uncovered[account] = uncoveredAfter(this.#uncovered[account]!, uncovered);
  }

  recordOf(account: AccountIndex, counts: LedgerCounts): SpendingRecord {
    // Field by field: with a spread object a row of a flush took a fifth longer.
    return {
      spent: this.spentOf(account),
      uncovered: asPicoUnits(this.#uncovered[account]!),
      dayNumber: counts.dayNumber,
      dayCalls: counts.dayCalls,
      minuteUsed: counts.minuteUsed,
      takenMs: counts.takenMs,
    };
  }

  spentOf(account: AccountIndex): PicoUnits {
    return asPicoUnits(this.#spent[account]!);
  }
}

/** The day and its calls, in rows that several gateways add to: of accounts here, of keys in key-uses.ts. */
export const CALLS_BY_DAY: CountsByPeriod<keyof DayCount> = [['dayNumber', ['dayCalls']]];

/** Adds what this gateway has charged since its last flush to the rows, to which other gateways add too. */
export class SharedSpentTotals implements FlushedTotals {
  readonly #findSpending: (account: AccountIndex) => SpendingRecord | undefined;
  readonly #onReversed: (account: AccountIndex, amount: PicoUnits) => void;
  /** By account: charged by this gateway since its start, and the part of that amount that is on disk. */
  readonly #charged: BigInt64Array;
  readonly #chargedOnDisk: BigInt64Array;
  /** By account: this gateway's last day on disk, and its calls of that day on disk. */
  readonly #dayNumbers: Int32Array;
  readonly #dayCalls: Int32Array;
  /** Left uncovered by this gateway, and not yet on disk. */
  readonly #uncovered = new Map<AccountIndex, bigint>();
  /** Reversals: charges that were taken back, as positive amounts, until the reversal is on disk. */
  readonly #reversed = new Map<AccountIndex, bigint>();
  /** Days of the last `recordOf`, which `recordWritten` moves to `#dayNumbers` and `#dayCalls`. */
  readonly #daysInCommit = new Map<AccountIndex, DayCount>();

  /**
   * A row on disk is the sum of all gateways, so `findSpending` is called in the transaction that writes it.
   * `onReversed` gets each amount whose reversal is on disk. The coordinator may then grant it to any
   * process, so this gateway takes it out of its lease.
   */
  constructor(
    accountsMax: number,
    findSpending: (account: AccountIndex) => SpendingRecord | undefined,
    onReversed: (account: AccountIndex, amount: PicoUnits) => void,
  ) {
    this.#findSpending = findSpending;
    this.#onReversed = onReversed;
    this.#charged = new BigInt64Array(accountsMax);
    this.#chargedOnDisk = new BigInt64Array(accountsMax);
    this.#dayNumbers = new Int32Array(accountsMax);
    this.#dayCalls = new Int32Array(accountsMax);
  }

  add(account: AccountIndex, charged: PicoUnits, uncovered: PicoUnits): void {
    this.#charged[account] = this.#charged[account]! + charged;
    if (charged < 0n) this.#reversed.set(account, (this.#reversed.get(account) ?? 0n) - charged);
    if (uncovered !== 0n) this.#uncovered.set(account, (this.#uncovered.get(account) ?? 0n) + uncovered);
  }

  recordOf(account: AccountIndex, counts: LedgerCounts): SpendingRecord {
    const stored = this.#findSpending(account);
    const spent = (stored?.spent ?? 0n) + this.#charged[account]! - this.#chargedOnDisk[account]!;
    invariant(spent >= 0n && spent <= CREDITED_PICO_UNITS_MAX, 'what is spent is within its bound');
    this.#daysInCommit.set(account, counts);
    const dayOnDisk = { dayNumber: this.#dayNumbers[account]!, dayCalls: this.#dayCalls[account]! };
    return {
      // `minuteUsed` is the count of the gateway that wrote last. Only the coordinator has the sum.
      ...mergedCounts(CALLS_BY_DAY, counts, dayOnDisk, stored),
      spent: asPicoUnits(spent),
      uncovered: uncoveredAfter(stored?.uncovered ?? 0n, this.#uncovered.get(account) ?? 0n),
    };
  }

  recordWritten(account: AccountIndex): void {
    this.#chargedOnDisk[account] = this.#charged[account]!;
    this.#uncovered.delete(account);
    const reversed = this.#reversed.get(account);
    if (reversed !== undefined) {
      this.#reversed.delete(account);
      this.#onReversed(account, asPicoUnits(reversed));
    }
    const day = this.#daysInCommit.get(account);
    if (day === undefined) return;
    this.#daysInCommit.delete(account);
    this.#dayNumbers[account] = day.dayNumber;
    this.#dayCalls[account] = day.dayCalls;
  }

  /** The part of this gateway's charges to the account that is on disk, and so no longer outstanding. */
  writtenOf(account: AccountIndex): PicoUnits {
    return asPicoUnits(this.#chargedOnDisk[account]!);
  }
}
