/**
 * The flush: from the journals and the ledger to the store. Main thread of a gateway process: on the flush
 * timer, when a listener asks, and at shutdown.
 *
 * Money and usage come from the journals alone, so that they always agree on disk; day counts and minutes
 * come from the ledger. Rows are absolute totals: writing one twice, or again after a crash, changes nothing.
 * If several gateways add to the same rows, each row is read in the transaction that writes it, and a mark
 * tells which flush it was. What the disk does not take waits in memory, and is written as soon as the disk
 * takes it.
 */
import type { Clock } from '../core/clock.js';
import { ACCOUNTING_ROWS_WAITING_MAX } from '../core/limits.js';
import { asWallMs, type AccountIndex, type KeyIndex } from '../core/units.js';
import type { JournalReader } from '../ledger/journal.js';
import type { Ledger } from '../ledger/ledger.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import type { SpendingRecord } from '../registry/account-record.js';
import type { KeyUseRecord } from '../registry/key-record.js';
import type { UsageRecord } from '../registry/usage-report.js';
import type { UsageKey } from '../registry/usage-report.js';
import type { TopAccounts } from '../telemetry/top-accounts.js';
import { FlushMeter, type FlushSnapshot } from '../telemetry/histogram.js';
import type { Log } from '../telemetry/log.js';
import type { ResponseChanges } from './stored-responses.js';
import type { KeyUses } from './key-uses.js';
import { type FlushMark, type HostClocks, hostClocks } from './flush-mark.js';
import { bootId } from './process-identity.js';
import type { SpendingTotals } from './spent-totals.js';
import type { UsageBook, UsageStore } from './usage-book.js';

/**
 * Changed accounts, and keys, of one transaction. It blocks the main thread, and so the admin interface, for
 * some 100 ms.
 */
const ACCOUNTS_MAX = 20_000;
const KEYS_MAX = 20_000;

/** Transactions of one run: enough for all accounts that a ledger can have, some of them twice. */
const BATCHES_MAX = 500;

/** A disk that stays full is logged this often, not at every flush. */
const LOG_PERIOD_MS = 10_000;

/** What a flush writes in one transaction, because the rows agree with each other. */
export interface FlushRows {
  readonly spendings: ReadonlyMap<AccountIndex, SpendingRecord>;
  readonly usages: Iterable<UsageRecord>;
  /** Of calls that are charged with these rows. */
  readonly answers?: ResponseChanges | undefined;
  /** Of the moment of these rows; absent if several gateways share the limits. */
  readonly clocks?: HostClocks | undefined;
  readonly keyUses?: ReadonlyMap<KeyIndex, KeyUseRecord> | undefined;
}

/** Responses that are written in the same transaction as their charges. */
export interface FlushedResponses {
  /** Those whose charges have been drained; undefined if there are none. */
  due(): ResponseChanges | undefined;
  /** They are on disk now. */
  noteWritten(changes: ResponseChanges): void;
  /** They could not be written. The disk may have room for charges only, and those must not wait. */
  noteFailed(): void;
}

export interface FlushStore extends UsageStore {
  /** Writes all that `work` puts, durable when it returns, or nothing. */
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
  /** These three are the shared kind if other gateways write to the store too, and `mark` is present. */
  readonly totals: SpendingTotals;
  readonly usage: UsageBook;
  /** Absent if nobody asks when keys were used. */
  readonly keyUses?: KeyUses;
  readonly mark?: FlushMark | undefined;
  readonly store: FlushStore;
  /** Whether new calls are refused while the store fails. The setting may be changed by a reload. */
  readonly refuseOnError: () => boolean;
  /** Absent if there is no usage log. */
  readonly usageLog?: UsageLogLines | undefined;
  /** Absent if nobody looks at who calls. */
  readonly tally?: Pick<TopAccounts, 'note'>;
  readonly answers?: FlushedResponses | undefined;
  /**
   * Gets each call that leaves something uncovered, or takes that back. Absent if this gateway alone has the
   * balances.
   */
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
  readonly #meter: FlushMeter;
  readonly #bootId = bootId();
  /** Accounts whose rows are to be written. A run that fails leaves them to the next. */
  readonly #accounts = new Set<AccountIndex>();
  /** The last commit failed, and it is not known yet whether its rows are on disk all the same. */
  #inDoubt = false;
  /** Undefined while the disk takes everything. */
  #lastError: string | undefined;
  #loggedAtMs = -Infinity;
  /** Records of the main thread, to be counted with the next drain. */
  readonly #corrections: { readonly journal: number; readonly record: JournalRecord }[] = [];

  constructor(options: LedgerFlushOptions) {
    this.#options = options;
    this.#meter = new FlushMeter(options.clock);
  }

  /**
   * Writes all that has changed. Returns true when it is on disk; false after a failure, which is logged and
   * loses nothing. Costs some microseconds a row, and a disk flush if there is any row.
   */
  run(): boolean {
    return this.#meter.measure(() => this.#writeAll());
  }

  /**
   * Writes what the journals hold and no more, for responses that wait for it. Returns what `run` returns.
   */
  commit(): boolean {
    return this.#meter.measure(() => this.drain() && this.#write());
  }

  /** Takes the journals into memory. False if a row could not be read: what follows stays in its journal. */
  drain(): boolean {
    try {
      // First: nothing may be added to rows that may be on disk.
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

  /** Counts, with the next flush, a record that corrects one of that journal. */
  correct(journal: number, record: JournalRecord): void {
    this.#corrections.push({ journal, record });
  }

  get state(): FlushState {
    return {
      ok: this.#lastError === undefined,
      lastError: this.#lastError,
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
      // After the journals: so the day's call of each charge is in this transaction or an earlier one.
      const drained = this.#options.ledger.drainDirty((account) => this.#accounts.add(account), ACCOUNTS_MAX);
      const drainedKeys = this.#options.keyUses?.drain(KEYS_MAX) ?? 0;
      if (!this.#write()) return false;
      if (drained < ACCOUNTS_MAX && drainedKeys < KEYS_MAX) return true;
    }
    return false;
  }

  #note(journal: number, record: JournalRecord): void {
    const { usage, totals, usageLog, tally, uncoveredCharges } = this.#options;
    // First what may throw: a record is counted whole or not at all.
    const row = usage.rowOf(record);
    totals.add(record.account, record.charged, record.uncovered);
    usage.add(row, record);
    this.#accounts.add(record.account);
    usageLog?.note(journal, record, row);
    tally?.note(record);
    if (record.uncovered !== 0n) uncoveredCharges?.note(journal, record);
  }

  #write(): boolean {
    const written = this.#writeRows();
    this.#options.usageLog?.handOver();
    return written;
  }

  #writeRows(): boolean {
    const { store, mark, usage, journals, keyUses, answers: storedResponses } = this.#options;
    try {
      if (this.#accounts.size > 0 || (keyUses?.size ?? 0) > 0) {
        // After the journals: a listener hands its response over before it appends the charge, so no charge
        // lacks its response.
        const answers = storedResponses?.due();
        mark?.begin();
        store.commit(() => {
          mark?.put();
          store.putAccounting({
            spendings: this.#spendings(),
            usages: usage.rows(),
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
    this.#noteHealthy();
    return true;
  }

  #noteWritten(): void {
    const { totals, keyUses, usage } = this.#options;
    for (const account of this.#accounts) totals.noteWritten?.(account);
    this.#accounts.clear();
    keyUses?.noteWritten();
    usage.noteCommitted();
  }

  /** If the last commit got to the disk after all, its rows are done with. Throws what the store throws. */
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

  /**
   * Logs the failure, and has the listeners refuse new calls if the settings or the rows that wait say so.
   */
  #fail(error: unknown): void {
    const { usage, keyUses, refuseOnError, clock, log } = this.#options;
    const accounts = this.#accounts.size;
    const rows = accounts + usage.waiting.size + (keyUses?.size ?? 0);
    this.#lastError = error instanceof Error ? error.message : String(error);
    const refusing = refuseOnError() || rows > ACCOUNTING_ROWS_WAITING_MAX;
    this.#setRefusing(refusing);
    if (clock.monotonicMs() - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = clock.monotonicMs();
    log.error('the books cannot be written: is the disk full or read-only? they are kept and tried again', {
      error: this.#lastError,
      accounts,
      newCalls: refusing ? 'refused' : 'served',
    });
  }

  #noteHealthy(): void {
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
