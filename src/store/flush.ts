/**
 * From the ledger to the store: the totals of all accounts that changed since the last time. Main thread, on the flush
 * timer and at shutdown.
 *
 * Rows are absolute totals, so that one which is written twice, or again after a crash, changes nothing.
 */
import type { Clock } from '../core/clock.js';
import { asWallMs, type AccountIndex } from '../core/units.js';
import type { Ledger } from '../ledger/ledger.js';
import type { SpendingRecord } from '../registry/account-record.js';
import type { Log } from '../telemetry/log.js';
import type { BooksRows } from './store.js';

/** Rows of one transaction: it blocks the main thread for some 100 ms, and the admin interface with it. */
const ROWS_MAX = 20_000;

/** Transactions of one run: all accounts that a ledger can have, some of them twice. */
const BATCHES_MAX = 500;

/** The store's part of the bargain. */
export interface SpendingStore {
  /** Durable when it returns; all or nothing. */
  putBooks(rows: BooksRows): void;
}

export interface LedgerFlushOptions {
  readonly ledger: Ledger;
  readonly store: SpendingStore;
  readonly clock: Clock;
  readonly log: Log;
}

export class LedgerFlush {
  readonly #ledger: Ledger;
  readonly #store: SpendingStore;
  readonly #clock: Clock;
  readonly #log: Log;
  /** Taken out of the ledger's dirty set and not on disk yet: after a failure they are written by the next run. */
  readonly #pending = new Map<AccountIndex, SpendingRecord>();

  constructor({ ledger, store, clock, log }: LedgerFlushOptions) {
    this.#ledger = ledger;
    this.#store = store;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Writes what is dirty. True when all of it is on disk; false after a failure, which is logged and loses nothing: the next
   * run writes newer totals of the same accounts. Costs 3 µs a row and a disk flush where there is any.
   */
  run(): boolean {
    for (let batches = 0; batches < BATCHES_MAX; batches++) {
      const drained = this.#drain();
      if (this.#pending.size === 0) return true;
      try {
        this.#store.putBooks({ spendings: this.#pending, usages: [] });
      } catch (error) {
        this.#log.error('charges could not be written; they are kept and written with the next flush', {
          accounts: this.#pending.size,
          error: error instanceof Error ? error.message : String(error),
        });
        return false;
      }
      this.#pending.clear();
      if (drained < ROWS_MAX) return true;
    }
    return false;
  }

  #drain(): number {
    const takenMs = asWallMs(Math.floor(this.#clock.wallMs()));
    return this.#ledger.drainDirty((account, snapshot) => {
      const { spent, uncovered, dayNumber, dayCalls, minuteUsed } = snapshot;
      this.#pending.set(account, { spent, uncovered, dayNumber, dayCalls, minuteUsed, takenMs });
    }, ROWS_MAX);
  }
}
