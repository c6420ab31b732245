/**
 * The books: from the journals and the ledger to the store. Main thread, on the flush timer, when a listener asks, and at
 * shutdown.
 *
 * Money and usage come from the journals alone, so that on disk they always agree; day counts and minutes come from the
 * ledger. Rows are absolute totals: one that is written twice, or again after a crash, changes nothing. Where several gateways
 * add to the same rows, each row is read in the transaction that writes it, and a mark tells which flush it was. What the disk
 * does not take waits in memory, and is written as soon as it does.
 */
import type { Clock } from '../core/clock.js';
import { asWallMs, type AccountIndex } from '../core/units.js';
import type { JournalReader } from '../ledger/journal.js';
import type { Ledger } from '../ledger/ledger.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import type { SpendingRecord } from '../registry/account-record.js';
import type { UsageKey } from '../registry/usage-report.js';
import type { TopAccounts } from '../telemetry/top-accounts.js';
import { FlushMeter, type FlushSnapshot } from '../telemetry/histogram.js';
import type { Log } from '../telemetry/log.js';
import type { ResponseChanges } from './stored-responses.js';
import type { KeyUses } from './key-uses.js';
import type { FlushMark } from './flush-mark.js';
import { hostClocks } from './host-clocks.js';
import { bootId } from './process-identity.js';
import type { SpendingTotals } from './spent-totals.js';
import { FlushHealth } from './flush-health.js';
import type { FlushRows } from './flush-rows.js';
import { UsageBook, type UsageStore } from './usage-book.js';

/** Dirty accounts, and keys, of one transaction: it blocks the main thread for some 100 ms, and the admin interface with it. */
const ACCOUNTS_MAX = 20_000;
const KEYS_MAX = 20_000;

/** Transactions of one run: all accounts that a ledger can have, some of them twice. */
const BATCHES_MAX = 500;

/** Responses that are to be on disk in the same transaction as their charges. */
export interface FlushedResponses {
  /** Those whose charges have been drained; undefined where there are none. */
  due(): ResponseChanges | undefined;
  /** They are on disk now. */
  noteWritten(changes: ResponseChanges): void;
  /** They could not be written: charges must not wait for a disk that has room for them and not for answers. */
  noteFailed(): void;
}

/** The store's part of the bargain. */
export interface FlushStore extends UsageStore {
  /** All that `work` puts, durable when it returns, or nothing. */
  commit<Result>(work: () => Result): Result;
  /** In a transaction. */
  putAccounting(rows: FlushRows): void;
}

/** The usage log: takes each call as it is counted, and writes the lines after each transaction. */
export interface UsageLogLines {
  note(journal: number, record: JournalRecord, row: Pick<UsageKey, 'keyId' | 'modelId'>): void;
  handOver(): void;
}

export interface LedgerFlushOptions {
  readonly ledger: Ledger;
  /** One a listener. */
  readonly journals: readonly JournalReader[];
  /** As the store has them. */
  readonly totals: SpendingTotals;
  /** Present where other gateways work on the store too; `totals` and `keyUses` are then those of a group. */
  readonly mark?: FlushMark | undefined;
  readonly store: FlushStore;
  /** Of the catalogue that runs: a reload may add models. */
  readonly modelIdOf: (modelIndex: number) => string;
  /** Whether new calls are refused while the store fails, as the settings say at the moment. */
  readonly refuseOnError: () => boolean;
  /** Absent where nobody asks when keys were used. */
  readonly keyUses?: KeyUses;
  /** Absent if there is no usage log. */
  readonly usageLog?: UsageLogLines | undefined;
  /** Absent where nobody looks at who calls. */
  readonly tally?: Pick<TopAccounts, 'note'>;
  readonly answers?: FlushedResponses | undefined;
  /** Told of each call that has left something uncovered, or takes that back; absent where the balance is this gateway's alone. */
  readonly uncoveredCharges?: { note(journal: number, record: JournalRecord): void } | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

export interface FlushState {
  readonly ok: boolean;
  readonly lastError: string | undefined;
  /** Accounts whose rows wait in memory. */
  readonly unflushedAccounts: number;
}

/** For the metrics. */
export interface FlushLoad {
  readonly flush: FlushSnapshot;
  /** How full each listener's journal is, 0 to 1. */
  readonly journalFills: readonly number[];
}

export class LedgerFlush {
  readonly #options: LedgerFlushOptions;
  readonly #usage: UsageBook;
  readonly #meter: FlushMeter;
  readonly #health: FlushHealth;
  readonly #bootId = bootId();
  /** Accounts whose rows are to be written; those of a run that failed are written by the next. */
  readonly #accounts = new Set<AccountIndex>();
  /** The commit of the last rows has failed, and whether they are on disk has not been looked up yet. */
  #inDoubt = false;
  /** Records that are no listener's, to be counted with the next drain. */
  readonly #corrections: { readonly journal: number; readonly record: JournalRecord }[] = [];

  constructor(options: LedgerFlushOptions) {
    this.#options = options;
    this.#usage = new UsageBook(options.store, options.modelIdOf, options.mark !== undefined);
    this.#meter = new FlushMeter(options.clock);
    this.#health = new FlushHealth(options);
  }

  /**
   * Writes all that has changed. True when it is on disk; false after a failure, which is logged and loses nothing. Costs
   * some microseconds a row, and a disk flush where there is any.
   */
  run(): boolean {
    return this.#meter.measure(() => this.#writeAll());
  }

  /** Writes what the journals hold, and no more: the short way for responses that wait for it. Returns as `run` does. */
  commit(): boolean {
    return this.#meter.measure(() => this.drain() && this.#write());
  }

  /** Takes the journals into memory. False where a row could not be read: what is behind it stays in its journal. */
  drain(): boolean {
    try {
      // Before anything is added to rows that may be on disk.
      this.#settleDoubt();
      this.#options.journals.forEach((journal, index) =>
        journal.drain((record) => this.#note(index, record)),
      );
      for (let next = this.#corrections[0]; next !== undefined; next = this.#corrections[0]) {
        this.#note(next.journal, next.record);
        this.#corrections.shift();
      }
      return true;
    } catch (error) {
      this.#fail(error);
      return false;
    }
  }

  /** Counts a record that corrects one of that journal with the next flush. */
  correct(journal: number, record: JournalRecord): void {
    this.#corrections.push({ journal, record });
  }

  get state(): FlushState {
    return {
      ok: this.#health.lastError === undefined,
      lastError: this.#health.lastError,
      unflushedAccounts: this.#accounts.size,
    };
  }

  get load(): FlushLoad {
    return {
      flush: this.#meter.read(),
      journalFills: this.#options.journals.map((journal) => journal.fill()),
    };
  }

  #writeAll(): boolean {
    if (!this.drain()) return false;
    for (let batches = 0; batches < BATCHES_MAX; batches++) {
      // After the journals: the day's call of every charge that they had is then in this transaction or in an earlier one.
      const drained = this.#options.ledger.drainDirty((account) => this.#accounts.add(account), ACCOUNTS_MAX);
      const drainedKeys = this.#options.keyUses?.drain(KEYS_MAX) ?? 0;
      if (!this.#write()) return false;
      if (drained < ACCOUNTS_MAX && drainedKeys < KEYS_MAX) return true;
    }
    return false;
  }

  #note(journal: number, record: JournalRecord): void {
    // First what may throw: a record is counted whole or not at all.
    const row = this.#usage.rowOf(record);
    this.#options.totals.add(record.account, record.charged, record.uncovered);
    this.#usage.add(row, record);
    this.#accounts.add(record.account);
    this.#options.usageLog?.note(journal, record, row);
    this.#options.tally?.note(record);
    if (record.uncovered !== 0n) this.#options.uncoveredCharges?.note(journal, record);
  }

  #write(): boolean {
    const written = this.#writeRows();
    this.#options.usageLog?.handOver();
    return written;
  }

  #writeRows(): boolean {
    const { store, mark, journals, keyUses, answers: storedResponses } = this.#options;
    try {
      if (this.#accounts.size > 0 || (keyUses?.size ?? 0) > 0) {
        // After the journals: a response is handed over before its charge is appended, so none of these charges lacks its own.
        const answers = storedResponses?.due();
        mark?.begin();
        store.commit(() => {
          mark?.put();
          store.putAccounting({
            spendings: this.#spendings(),
            usages: this.#usage.rows(),
            answers,
            clocks: mark === undefined ? hostClocks(this.#options.clock, this.#bootId) : undefined,
            keyUses: keyUses?.rows(),
          });
        });
        this.#noteWritten();
        if (answers !== undefined) storedResponses?.noteWritten(answers);
      }
    } catch (error) {
      this.#inDoubt = mark !== undefined;
      storedResponses?.noteFailed();
      this.#fail(error);
      return false;
    }
    for (const journal of journals) journal.noteCommitted();
    this.#health.noteWritten();
    return true;
  }

  #noteWritten(): void {
    for (const account of this.#accounts) this.#options.totals.noteWritten?.(account);
    this.#accounts.clear();
    this.#options.keyUses?.noteWritten();
    this.#usage.noteCommitted();
  }

  /** Throws what the store throws: then it is as much in doubt as before. */
  #settleDoubt(): void {
    if (!this.#inDoubt) return;
    if (this.#options.mark!.hasReachedDisk()) this.#noteWritten();
    this.#inDoubt = false;
  }

  #spendings(): Map<AccountIndex, SpendingRecord> {
    const { ledger, totals, clock } = this.#options;
    const takenMs = asWallMs(Math.floor(clock.wallMs()));
    const records = new Map<AccountIndex, SpendingRecord>();
    for (const account of this.#accounts) {
      const { dayNumber, dayCalls } = ledger.dayOf(account);
      const counts = { dayNumber, dayCalls, minuteUsed: ledger.minuteUsedOf(account), takenMs };
      records.set(account, totals.recordOf(account, counts));
    }
    return records;
  }

  #fail(error: unknown): void {
    const accounts = this.#accounts.size;
    const rows = accounts + this.#usage.waiting.size + (this.#options.keyUses?.size ?? 0);
    this.#health.noteFailed(error, { accounts, rows });
  }
}
