/**
 * The flush: writes what the journals and the ledger have counted to the store. The gateway calls it on the
 * main thread of its process: on the flush timer, when a listener asks, and at shutdown.
 *
 * - Money and usage come from the journals alone, so that they always agree on disk. The day's calls and the
 *   permits of the minute come from the ledger.
 * - A gateway that has the store for itself writes absolute totals: a row may be written twice.
 * - If several gateways share the store, each adds its own counts to a row, which it reads in the transaction
 *   that writes the row. No count may be added twice, so the transaction also writes a flush mark
 *   (flush-mark.ts), by which a gateway finds out whether a commit that failed is on disk all the same.
 * - If a transaction fails, its rows stay in memory, and the next flush writes them.
 *
 * Must hold: a flush drains the journals first, then the ledger's counts, then the stored responses.
 * Listeners write the three in the opposite order, so no charge is on disk without its count and its
 * response (test/unit/store/flush.test.ts, test/unit/store/shared-books.test.ts,
 * test/unit/store/stored-responses.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { errorText } from '../core/errors.js';
import { ACCOUNTING_ROWS_WAITING_MAX } from '../core/limits.js';
import { asWallMs, type AccountIndex, type KeyIndex } from '../core/units.js';
import type { JournalReader } from '../ledger/journal.js';
import type { Ledger } from '../ledger/ledger.js';
import type { JournalRecord } from '../ledger/journal-layout.js';
import type { SpendingRecord } from '../registry/account-record.js';
import type { KeyUseRecord } from '../registry/key-record.js';
import type { QuotaUseRecord, UsedScope } from '../registry/quota-use.js';
import type { UsageRowKey, UsageRecord } from '../registry/usage-report.js';
import type { TopAccounts } from '../telemetry/top-accounts.js';
import { FlushMeter, type FlushSnapshot } from '../telemetry/flush-meter.js';
import type { Log } from '../telemetry/log.js';
import type { ResponseChanges } from './response-table.js';
import type { KeyUses, SharedKeyUses } from './key-uses.js';
import type { FlushMark } from './flush-mark.js';
import { type HostClocks, hostClocks } from './host-clocks.js';
import { bootId } from './process-identity.js';
import type { QuotaUses, SharedQuotaUses } from './quota-uses.js';
import type { FlushedTotals, SharedSpentTotals, SpentTotals } from './spent-totals.js';
import type { UsageBook, UsageStore } from './usage-book.js';

/**
 * How many changed accounts, and keys, are taken from the ledger for one transaction. A transaction of so
 * many rows blocks the main thread, and so the admin interface, for some 100 ms.
 */
const ACCOUNTS_MAX = 20_000;
const KEYS_MAX = 20_000;

/** Enough for twice the accounts of a ledger (4.2 million); ends a run that cannot keep up with listeners. */
const TRANSACTIONS_MAX = 500;

/** While flushes keep failing, a failure is logged this often. */
const LOG_PERIOD_MS = 10_000;

/** What a flush writes in one transaction, so that the rows on disk always agree with each other. */
export interface FlushRows {
  readonly spendings: ReadonlyMap<AccountIndex, SpendingRecord>;
  readonly usages: Iterable<UsageRecord>;
  /** Changes of stored responses, of calls that are charged with these rows. */
  readonly responses?: ResponseChanges | undefined;
  /** The machine's clocks when these rows were made; undefined if the boot is unknown (host-clocks.ts). */
  readonly clocks?: HostClocks | undefined;
  readonly keyUses?: ReadonlyMap<KeyIndex, KeyUseRecord> | undefined;
  readonly quotaUses?: Iterable<readonly [UsedScope, QuotaUseRecord]> | undefined;
}

/** Stored responses, of calls with an `Idempotency-Key`: written in the transaction of their charges. */
export interface FlushedResponses {
  /** The responses whose charges the flush has taken from the journals; undefined if none waits. */
  due(): ResponseChanges | undefined;
  /** Call when `changes`, which `due` returned, are on disk. */
  recordWritten(changes: ResponseChanges): void;
  /**
   * Call once it is known that the transaction failed and is not on disk. Responses are long, and the disk
   * may have space for the charges alone, so the next flush leaves out their bodies.
   */
  recordFailed(): void;
}

export interface FlushStore extends UsageStore {
  /** Runs `work` as one transaction. On return it is on disk; if it throws, nothing is written. */
  commit<Result>(work: () => Result): Result;
  /** Writes the rows. Called in a transaction. */
  putAccounting(rows: FlushRows): void;
}

/** The usage log: a line for each journal record. */
interface UsageLogLines {
  /** Makes the line of a record that was counted in the usage row `row`. */
  add(requestPrefix: string, record: JournalRecord, row: Pick<UsageRowKey, 'keyId' | 'modelId'>): void;
  /** Writes the lines to the log's file. Called after each transaction, even if it failed. */
  write(): void;
}

/** The options that a flush has whether it shares its store or not. */
export interface FlushContext {
  readonly ledger: Ledger;
  /** The journals by the index of their listener. */
  readonly journals: readonly JournalReader[];
  /**
   * What the request ids of the listener of that index begin with. It is read when a record is drained,
   * because a correction of a call may come after the listener's successor, whose ids differ, has begun.
   */
  readonly requestPrefixOf: (listener: number) => string;
  /** SharedUsageBook if there is a flush mark: the two classes have the same type. */
  readonly usage: UsageBook;
  readonly keyUses: KeyUses;
  readonly quotaUses: QuotaUses;
  readonly store: FlushStore;
  /** Whether new calls are rejected while the store fails. Read at each failure: a reload may change it. */
  readonly rejectOnError: () => boolean;
  /** Absent if there is no usage log. */
  readonly usageLog?: UsageLogLines | undefined;
  /** The top-accounts counter, which gets each record. */
  readonly topAccounts?: Pick<TopAccounts, 'count'>;
  readonly storedResponses?: FlushedResponses | undefined;
  /** Gets the accounts and keys of each transaction that is on disk, for notices of their quotas. */
  readonly changed?: { add(accounts: Iterable<AccountIndex>, keys: Iterable<KeyIndex>): void };
  /**
   * Gets each record that leaves a charge uncovered, takes such a charge back or has collected it. Absent if
   * this gateway alone has the balances.
   */
  readonly uncoveredCharges?: { add(requestPrefix: string, record: JournalRecord): void } | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** A gateway that shares the store leaves flush marks; one that alone writes to it has absolute totals. */
export type LedgerFlushOptions = FlushContext &
  (
    | { readonly totals: SpentTotals; readonly mark?: undefined }
    | {
        readonly totals: SharedSpentTotals;
        readonly keyUses: SharedKeyUses;
        readonly quotaUses: SharedQuotaUses;
        readonly mark: FlushMark;
      }
  );

export interface FlushState {
  readonly ok: boolean;
  readonly lastError: string | undefined;
  /** Accounts whose rows wait in memory. */
  readonly unflushedAccounts: number;
}

/** How busy the flush is, for the metrics. */
interface FlushLoad {
  readonly flush: FlushSnapshot;
  /** How full each listener's journal is, 0 to 1, by the listener's index. */
  readonly journalFills: readonly number[];
}

export class LedgerFlush {
  readonly #options: LedgerFlushOptions;
  readonly #meter: FlushMeter;
  readonly #bootId = bootId();
  /** Accounts whose rows are to be written. A run that fails leaves them to the next. */
  readonly #accounts = new Set<AccountIndex>();
  /** The stored responses of a commit that failed, until its flush mark tells whether it is on disk. */
  #unresolved: { readonly responses: ResponseChanges | undefined } | undefined;
  /** Why the last transaction failed; undefined if it succeeded. */
  #lastError: string | undefined;
  #loggedAtMs = -Infinity;
  /**
   * Records that the next drain counts after the journals: what `drainEnded` has taken from a journal, and
   * corrections. Example: a call has left 0.02 uncovered, and the coordinator has granted 0.02 since. The
   * correction has 0.02 charged, -0.02 uncovered. A Set, because `shift` of a long array moves all others.
   */
  readonly #queued = new Set<{ readonly requestPrefix: string; readonly record: JournalRecord }>();

  constructor(options: LedgerFlushOptions) {
    this.#options = options;
    this.#meter = new FlushMeter(options.clock);
  }

  /**
   * Writes all that has changed, in as many transactions as it takes. Returns true when all is on disk. False
   * if something is left for the next run: after a failure, which is logged and loses nothing, or after
   * TRANSACTIONS_MAX transactions. Costs some microseconds a row, and for each transaction an fsync.
   */
  run(): boolean {
    return this.#meter.measure(() => this.#writeAll());
  }

  /**
   * Writes in one transaction what the journals hold, and what keys, groups and rules for models have used.
   * Some responses wait for it (`durability: commit`). True if all is on disk; false after a failure.
   */
  commit(): boolean {
    return this.#meter.measure(() => {
      if (!this.drain()) return false;
      this.#drainUses();
      return this.#write();
    });
  }

  /**
   * Call after the journals were drained: then the next transaction has the use of each charge, whose keys
   * `#count` has added. Returns how many other keys were taken, at most KEYS_MAX.
   */
  #drainUses(): number {
    const { keyUses, quotaUses } = this.#options;
    quotaUses.drain();
    return keyUses.drain(KEYS_MAX);
  }

  /**
   * Counts the records of the journals in memory. False, and logged, if a row of the store could not be read:
   * then the record that belongs to the row, and all records after it, stay in their journals.
   */
  drain(): boolean {
    try {
      // The last commit is resolved first: if it is on disk after all, its rows leave memory. A record that
      // was counted in such a row before would be lost with the row.
      this.#resolveCommit();
      this.#options.journals.forEach((journal, index) => {
        const requestPrefix = this.#options.requestPrefixOf(index);
        journal.drain((record) => this.#count(requestPrefix, record));
      });
      for (const queued of this.#queued) {
        this.#count(queued.requestPrefix, queued.record);
        this.#queued.delete(queued);
      }
      return true;
    } catch (error) {
      this.#recordFailure(error);
      return false;
    }
  }

  /**
   * Call when a listener has ended, before its successor gets another prefix of request ids. As `drain`; but
   * records that cannot be counted now are queued with this prefix, as copies, because the journal reuses its
   * object. Beyond ACCOUNTING_ROWS_WAITING_MAX they stay in it, and the usage log gives them the successor's.
   */
  drainEnded(listener: number): void {
    if (this.drain() || this.#queued.size >= ACCOUNTING_ROWS_WAITING_MAX) return;
    const { journals, requestPrefixOf } = this.#options;
    const requestPrefix = requestPrefixOf(listener);
    journals[listener]!.drain((record) => this.correct(requestPrefix, { ...record }));
  }

  /** Queues a record. `requestPrefix` is that with which the call's first record was counted. */
  correct(requestPrefix: string, record: JournalRecord): void {
    this.#queued.add({ requestPrefix, record });
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
    for (let transactions = 0; transactions < TRANSACTIONS_MAX; transactions++) {
      // After the journals. A listener counts the day's call before it appends the charge, so the count of
      // each charge drained above is in this transaction or in an earlier one.
      const drained = this.#options.ledger.dirty.drain(
        (account) => this.#accounts.add(account),
        ACCOUNTS_MAX,
      );
      const drainedKeys = this.#drainUses();
      if (!this.#write()) return false;
      if (drained < ACCOUNTS_MAX && drainedKeys < KEYS_MAX) return true;
    }
    return false;
  }

  #count(requestPrefix: string, record: JournalRecord): void {
    const { usage, totals, keyUses, usageLog, topAccounts, uncoveredCharges } = this.#options;
    // `rowOf` is called first, because it may throw: a record is counted whole or not at all.
    const row = usage.rowOf(record);
    totals.add(record.account, record.charged, record.uncovered);
    usage.add(row, record);
    this.#accounts.add(record.account);
    keyUses.addCharged(record.key);
    usageLog?.add(requestPrefix, record, row);
    topAccounts?.count(record);
    if (record.uncovered !== 0n) uncoveredCharges?.add(requestPrefix, record);
  }

  #write(): boolean {
    const isWritten = this.#writeTransaction();
    this.#options.usageLog?.write();
    return isWritten;
  }

  #writeTransaction(): boolean {
    const { store, mark, usage, journals, keyUses, quotaUses, storedResponses } = this.#options;
    let responses: ResponseChanges | undefined;
    try {
      if (this.#accounts.size > 0 || keyUses.size > 0 || quotaUses.size > 0) {
        // First: if this flush fails before its transaction, the flush mark on disk must not be taken for its
        // own.
        const putMark = mark?.begin();
        // After the drain of the journals. A listener hands a response over before it appends the charge: so
        // the response of each charge that was drained is here.
        responses = storedResponses?.due();
        store.commit(() => {
          putMark?.();
          store.putAccounting({
            spendings: this.#spendings(),
            usages: usage.rows(),
            responses,
            clocks: hostClocks(this.#options.clock, this.#bootId),
            keyUses: keyUses.rows(),
            quotaUses: quotaUses.rows(this.#accounts, keyUses.waiting),
          });
        });
        this.#recordWritten(responses);
      }
    } catch (error) {
      if (mark === undefined) storedResponses?.recordFailed();
      else this.#unresolved = { responses };
      this.#recordFailure(error);
      return false;
    }
    for (const journal of journals) journal.markCommitted();
    this.#recordSuccess();
    return true;
  }

  #recordWritten(responses: ResponseChanges | undefined): void {
    const { keyUses, quotaUses, usage, changed, storedResponses } = this.#options;
    const totals: FlushedTotals = this.#options.totals;
    for (const account of this.#accounts) totals.recordWritten?.(account);
    changed?.add(this.#accounts, keyUses.waiting);
    this.#accounts.clear();
    keyUses.recordWritten();
    quotaUses.recordWritten();
    usage.recordWritten();
    if (responses !== undefined) storedResponses?.recordWritten(responses);
  }

  /**
   * After a failed commit: finds out by the flush mark whether its rows are on disk all the same. If not, the
   * next commit writes them. Throws what the store throws.
   */
  #resolveCommit(): void {
    if (this.#unresolved === undefined) return;
    if (this.#options.mark!.hasReachedDisk()) this.#recordWritten(this.#unresolved.responses);
    else this.#options.storedResponses?.recordFailed();
    this.#unresolved = undefined;
  }

  #spendings(): Map<AccountIndex, SpendingRecord> {
    const { ledger, totals, clock } = this.#options;
    const takenMs = asWallMs(Math.floor(clock.wallMs()));
    const records = new Map<AccountIndex, SpendingRecord>();
    for (const account of this.#accounts) {
      const { dayNumber, dayCalls } = ledger.day.read(account);
      const counts = { dayNumber, dayCalls, minuteUsed: ledger.minute.usedOf(account), takenMs };
      records.set(account, totals.recordOf(account, counts));
    }
    return records;
  }

  /**
   * Logs the failure, at most once each LOG_PERIOD_MS. Has the listeners reject new calls if the settings say
   * so, or if too many rows wait in memory.
   */
  #recordFailure(error: unknown): void {
    const { usage, keyUses, rejectOnError, clock, log } = this.#options;
    const accounts = this.#accounts.size;
    const rowsWaiting = accounts + usage.waiting.size + keyUses.size;
    this.#lastError = errorText(error);
    const rejectsCalls = rejectOnError() || rowsWaiting > ACCOUNTING_ROWS_WAITING_MAX;
    this.#setRejecting(rejectsCalls);
    if (clock.monotonicMs() - this.#loggedAtMs < LOG_PERIOD_MS) return;
    this.#loggedAtMs = clock.monotonicMs();
    log.error('the books cannot be written: is the disk full or read-only? they are kept and tried again', {
      error: this.#lastError,
      accounts,
      newCalls: rejectsCalls ? 'refused' : 'served',
    });
  }

  #recordSuccess(): void {
    if (this.#lastError === undefined) return;
    this.#lastError = undefined;
    this.#loggedAtMs = -Infinity;
    this.#setRejecting(false);
    this.#options.log.warn('the books are written again; no charge was lost');
  }

  #setRejecting(rejectsCalls: boolean): void {
    for (const journal of this.#options.journals) journal.setRejecting(rejectsCalls);
  }
}
