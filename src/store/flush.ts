/**
 * The books: from the journals and the ledger to the store. Main thread, on the flush timer, when a listener asks, and at
 * shutdown.
 *
 * Money and usage come from the journals alone, so that on disk they always agree; day counts and minutes come from the
 * ledger. Rows are absolute totals: one that is written twice, or again after a crash, changes nothing. What the disk does
 * not take waits in memory, and is written as soon as it does.
 */
import type { Clock } from '../core/clock.js';
import { BOOKS_ROWS_WAITING_MAX } from '../core/limits.js';
import { asWallMs, type AccountIndex } from '../core/units.js';
import type { JournalReader } from '../ledger/journal.js';
import type { Ledger } from '../ledger/ledger.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import type { SpendingRecord } from '../registry/account-record.js';
import type { Log } from '../telemetry/log.js';
import type { SpentTotals } from './spent-totals.js';
import type { BooksRows } from './store.js';
import { UsageBook, type UsageStore } from './usage-book.js';
import type { UsageLines } from './usage-lines.js';

/** Dirty accounts of one transaction: it blocks the main thread for some 100 ms, and the admin interface with it. */
const ACCOUNTS_MAX = 20_000;

/** Transactions of one run: all accounts that a ledger can have, some of them twice. */
const BATCHES_MAX = 500;

/** A disk that stays full is told so often, not at every flush. */
const LOG_PERIOD_MS = 10_000;

/** The store's part of the bargain. */
export interface BooksStore extends UsageStore {
  /** Durable when it returns; all or nothing. */
  putBooks(rows: BooksRows): void;
}

export interface LedgerFlushOptions {
  readonly ledger: Ledger;
  /** One a listener. */
  readonly journals: readonly JournalReader[];
  /** As the store has them. */
  readonly totals: SpentTotals;
  readonly store: BooksStore;
  /** Of the catalogue, in its order. */
  readonly modelIds: readonly string[];
  /** Whether new calls are refused while the store fails. */
  readonly refuseOnError: boolean;
  /** Absent where calls are not logged. */
  readonly usageLines?: Pick<UsageLines, 'note' | 'handOver'> | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

export interface BooksState {
  readonly ok: boolean;
  readonly lastError: string | undefined;
  /** Accounts whose rows wait in memory. */
  readonly unflushedAccounts: number;
}

export class LedgerFlush {
  readonly #options: LedgerFlushOptions;
  readonly #usage: UsageBook;
  /** Accounts whose rows are to be written; those of a run that failed are written by the next. */
  readonly #accounts = new Set<AccountIndex>();
  #lastError: string | undefined;
  #loggedAtMs = -Infinity;

  constructor(options: LedgerFlushOptions) {
    this.#options = options;
    this.#usage = new UsageBook(options.store, options.modelIds);
  }

  /**
   * Writes all that has changed. True when it is on disk; false after a failure, which is logged and loses nothing. Costs
   * some microseconds a row, and a disk flush where there is any.
   */
  run(): boolean {
    if (!this.drain()) return false;
    for (let batches = 0; batches < BATCHES_MAX; batches++) {
      // After the journals: the day's call of every charge that they had is then in this transaction or in an earlier one.
      const drained = this.#options.ledger.drainDirty((account) => this.#accounts.add(account), ACCOUNTS_MAX);
      if (!this.#write()) return false;
      if (drained < ACCOUNTS_MAX) return true;
    }
    return false;
  }

  /** Writes what the journals hold, and no more: the short way for answers that wait for it. Returns as `run` does. */
  commit(): boolean {
    return this.drain() && this.#write();
  }

  /** Takes the journals into memory. False where a row could not be read: what is behind it stays in its journal. */
  drain(): boolean {
    try {
      this.#options.journals.forEach((journal, index) =>
        journal.drain((record) => this.#note(index, record)),
      );
      return true;
    } catch (error) {
      this.#fail(error);
      return false;
    }
  }

  get state(): BooksState {
    return {
      ok: this.#lastError === undefined,
      lastError: this.#lastError,
      unflushedAccounts: this.#accounts.size,
    };
  }

  #note(journal: number, record: JournalRecord): void {
    // First what may throw: a record is counted whole or not at all.
    const row = this.#usage.rowOf(record);
    this.#options.totals.add(record.account, record.charged, record.uncovered);
    this.#usage.add(row, record);
    this.#accounts.add(record.account);
    this.#options.usageLines?.note(journal, record, row);
  }

  #write(): boolean {
    const written = this.#writeRows();
    this.#options.usageLines?.handOver();
    return written;
  }

  #writeRows(): boolean {
    const { store, journals } = this.#options;
    try {
      if (this.#accounts.size > 0) {
        store.putBooks({ spendings: this.#spendings(), usages: this.#usage.waiting });
        this.#accounts.clear();
        this.#usage.noteCommitted();
      }
    } catch (error) {
      this.#fail(error);
      return false;
    }
    for (const journal of journals) journal.noteCommitted();
    this.#recover();
    return true;
  }

  #spendings(): Map<AccountIndex, SpendingRecord> {
    const { ledger, totals, clock } = this.#options;
    const takenMs = asWallMs(Math.floor(clock.wallMs()));
    const records = new Map<AccountIndex, SpendingRecord>();
    for (const account of this.#accounts) {
      const { dayNumber, dayCalls } = ledger.dayOf(account);
      records.set(account, {
        spent: totals.spentOf(account),
        uncovered: totals.uncoveredOf(account),
        dayNumber,
        dayCalls,
        minuteUsed: ledger.minuteUsedOf(account),
        takenMs,
      });
    }
    return records;
  }

  #fail(error: unknown): void {
    const { refuseOnError, clock, log } = this.#options;
    this.#lastError = error instanceof Error ? error.message : String(error);
    const waiting = this.#accounts.size + this.#usage.waiting.size;
    const refusing = refuseOnError || waiting > BOOKS_ROWS_WAITING_MAX;
    this.#setRefusing(refusing);
    if (clock.monotonicMs() - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = clock.monotonicMs();
    log.error('the books cannot be written: is the disk full or read-only? they are kept and tried again', {
      error: this.#lastError,
      accounts: this.#accounts.size,
      newCalls: refusing ? 'refused' : 'served',
    });
  }

  #recover(): void {
    if (this.#lastError === undefined) return;
    this.#lastError = undefined;
    this.#loggedAtMs = -Infinity;
    this.#setRefusing(false);
    this.#options.log.warn('the books are written again; nothing was lost');
  }

  #setRefusing(refusing: boolean): void {
    for (const journal of this.#options.journals) journal.setRefusing(refusing);
  }
}
