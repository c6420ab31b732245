/**
 * The store: the LMDB file in the data directory. gateway/accounting-base.ts opens it on the main thread of a
 * gateway process, cli/store-client.ts in a command. The registry, the flush and recovery use it.
 *
 * Every method reads or writes synchronously. A lookup costs some microseconds, a commit one fsync. A
 * row that does not match its schema throws StoreError `damaged`.
 *
 * Must hold: rows of the registry (RecordedTable of row-recorder.ts) are put inside `commit`, or in a
 * transaction of change-feed.ts; other rows, which are of this host alone, in any transaction. Elsewhere the
 * tables throw (test/unit/store/row-recorder.test.ts).
 */
import { statfsSync } from 'node:fs';
import { asAccountIndex, type AccountIndex, type KeyIndex } from '../core/units.js';
import type {
  AccountRecord,
  CreditRecord,
  CreditRequestRecord,
  SpendingRecord,
} from '../registry/account-record.js';
import type { Page, RecordStore } from '../registry/record-store.js';
import type { UsageRowKey, UsageRange, UsageRecord, UsageTotals } from '../registry/usage-report.js';
import { type ResponseTable, cachedResponseTable, keyedResponseTable } from './response-table.js';
import type { FlushRows } from './flush.js';
import { FlushMark } from './flush-mark.js';
import { type HostClocks, putClocks, steppedMs } from './host-clocks.js';
import {
  packAccount,
  packCredit,
  packCreditRequest,
  packSpending,
  readAccount,
  readCredit,
  readCreditRequest,
  readSpending,
} from './account-codec.js';
import { AFTER_ALL_NUMBERS, findRow, idAt, locationOf, rowsIn } from './record-codec.js';
import { packUsage, readUsage } from './usage-codec.js';
import { GroupRows } from './group-rows.js';
import { HistoryRows } from './history-rows.js';
import { NoticeRows } from './notice-rows.js';
import { KeyRows } from './key-rows.js';
import { OperatorChanges } from './operator-changes.js';
import { OperatorRows } from './operator-rows.js';
import { QuotaUseRows } from './quota-use-rows.js';
import { RegistryCopy } from './registry-copy.js';
import { SharedChanges } from './change-feed.js';
import { SlotRows } from './slot-rows.js';
import { StoreHold, type StoreUser } from './store-hold.js';
import { openTables, type Tables } from './tables.js';

export class Store implements RecordStore {
  /** Stored responses for replays by Idempotency-Key. */
  readonly answers: ResponseTable;
  /** Responses of the response cache. */
  readonly cached: ResponseTable;
  readonly groups: GroupRows;
  readonly quotaUses: QuotaUseRows;
  readonly keys: KeyRows;
  readonly operators: OperatorRows;
  readonly operatorChanges: OperatorChanges;
  /** Makes the changes of processes that share the registry. */
  readonly shared: SharedChanges;
  readonly history: HistoryRows;
  readonly notices: NoticeRows;
  /** This host's copy of the registry that hosts share. */
  readonly copy: RegistryCopy;
  readonly #tables: Tables;
  readonly #accounts: SlotRows<AccountRecord, AccountIndex>;
  /** Undefined if the store was opened without `hold`. */
  #hold: StoreHold | undefined;

  /** Opens or makes the store in `dataPath`. Throws StoreError. */
  constructor(dataPath: string) {
    this.#tables = openTables(dataPath);
    const { accounts: records, accountSlots: slots } = this.#tables;
    this.#accounts = new SlotRows(this.#tables, { records, slots }, readAccount);
    this.answers = keyedResponseTable(this.#tables);
    this.cached = cachedResponseTable(this.#tables);
    this.groups = new GroupRows(this.#tables);
    this.quotaUses = new QuotaUseRows(this.#tables);
    this.keys = new KeyRows(this.#tables);
    this.operators = new OperatorRows(this.#tables);
    this.operatorChanges = new OperatorChanges(this.#tables, (id) => this.groups.find(id)?.name ?? id);
    this.copy = new RegistryCopy(this.#tables, this);
    this.shared = new SharedChanges(this.#tables, this.copy);
    this.history = new HistoryRows(this.#tables);
    this.notices = new NoticeRows(this.#tables);
  }

  /** Path of the file, for messages. */
  get path(): string {
    return this.#tables.path;
  }

  /**
   * Opens the store, and keeps commands and gateways of other process groups from changing it until `close`.
   * Calls `StoreHold.take`, which says what `onAlone` is, what it throws and costs. Throws StoreError too.
   */
  static hold(dataPath: string, user: StoreUser, onAlone?: () => void): Store {
    const hold = StoreHold.take(dataPath, user, onAlone);
    try {
      const store = new Store(dataPath);
      store.#hold = hold;
      return store;
    } catch (error) {
      void hold.giveBack();
      throw error;
    }
  }

  /** Free bytes of the file's disk for this user. Takes some µs. */
  freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.path);
    return bavail * bsize;
  }

  /** Closes the file, then gives the hold back: another process may not open the file before. */
  async close(): Promise<void> {
    await this.#tables.environment.close();
    await this.#hold?.giveBack();
  }

  /**
   * Runs `work` as one transaction, which is on disk when `commit` returns; a throw undoes it. Within
   * `operatorChanges.runAs`, the transaction also writes the row of the operator's change.
   */
  commit<Result>(work: () => Result): Result {
    const { environment, recorder } = this.#tables;
    return environment.write(() => {
      const { result, rows } = recorder.record(work);
      if (rows.length === 0) return result;
      recorder.record(() => this.operatorChanges.append(rows));
      // Other hosts lack these rows, so the store is no copy of their registry any more. In a transaction of
      // `shared`, which records rows too, SharedChanges decides that.
      if (!recorder.isRecording) this.copy.detach();
      return result;
    });
  }

  /** Lets later reads see all commits up to now. Without it they may be older by one event-loop turn. */
  refresh(): void {
    this.#tables.environment.refresh();
  }

  findAccount(id: string): AccountRecord | undefined {
    return this.#accounts.find(id);
  }

  findAccountByName(name: string): AccountRecord | undefined {
    const id = this.#tables.accountNames.get(name);
    return id === undefined ? undefined : this.#accounts.recordOf(id);
  }

  findAccountId(index: AccountIndex): string | undefined {
    return idAt(this.#tables.accountSlots, index);
  }

  listAccounts(from: number, limit: number): Page<AccountRecord> {
    return this.#accounts.listAll(from, limit);
  }

  findAccountsByIdStart(start: string, limit: number): AccountIndex[] {
    // `~` comes after `z`, the last character that an id may have.
    const rows = rowsIn(this.#tables.accounts, readAccount, { start, end: `${start}~`, limit });
    return Array.from(rows, ([, { index }]) => index);
  }

  /** At most `limit` ids after `after`, ordered. Reads keys alone, so a damaged row hides no account. */
  listAccountIds(after: string, limit: number): string[] {
    return Array.from(this.#tables.accounts.getKeys({ start: after, exclusiveStart: true, limit }));
  }

  /** One above the highest slot: accounts are never deleted, so no lower slot is free. */
  freeAccountIndex(): AccountIndex {
    const [highest] = Array.from(this.#tables.accountSlots.getKeys({ reverse: true, limit: 1 }));
    return asAccountIndex(highest === undefined ? 0 : highest + 1);
  }

  /** No index row of a former record stays: the registry never changes name or slot of an account. */
  putAccount(record: AccountRecord): void {
    this.groups.moveAccount(this.findAccount(record.id), record);
    this.#tables.accounts.putSync(record.id, packAccount(record));
    this.#tables.accountSlots.putSync(record.index, record.id);
    this.#tables.accountNames.putSync(record.name, record.id);
  }

  accounts(): Iterable<AccountRecord> {
    return this.#accounts.all();
  }

  /** Puts the first credit of a new account, as number 0, without looking for the last number. */
  openCredits(account: AccountIndex, record: CreditRecord): void {
    this.#tables.credits.putSync([account, 0], packCredit(record));
  }

  addCredit(account: AccountIndex, record: CreditRecord): void {
    const { credits } = this.#tables;
    const range = { start: [account, AFTER_ALL_NUMBERS], end: [account], reverse: true, limit: 1 };
    const [lastKey] = Array.from(credits.getKeys(range));
    credits.putSync([account, lastKey === undefined ? 0 : lastKey[1] + 1], packCredit(record));
  }

  /** The sum of all credits and debits is `credited` of the account's record. */
  listCredits(account: AccountIndex, from: number, limit: number): Page<CreditRecord> {
    const { credits } = this.#tables;
    const range = { start: [account, from], end: [account, AFTER_ALL_NUMBERS], limit: limit + 1 };
    const entries = Array.from(credits.getRange(range));
    const items = entries
      .slice(0, limit)
      .map(({ key, value }) => readCredit(value, locationOf(credits, key)));
    return { items, next: entries[limit]?.key[1] };
  }

  findCreditRequest(account: AccountIndex, idempotencyKey: string): CreditRequestRecord | undefined {
    return findRow(this.#tables.creditRequests, [account, idempotencyKey], readCreditRequest);
  }

  putCreditRequest(account: AccountIndex, idempotencyKey: string, record: CreditRequestRecord): void {
    this.#tables.creditRequests.putSync([account, idempotencyKey], packCreditRequest(record));
  }

  findSpending(account: AccountIndex): SpendingRecord | undefined {
    return findRow(this.#tables.spending, account, readSpending);
  }

  /** Writes the rows of a flush, all of this host alone. Called in a transaction. */
  putAccounting({ spendings, usages, responses, clocks, keyUses, quotaUses }: FlushRows): void {
    const { spending, usage } = this.#tables;
    for (const [account, record] of spendings) spending.putSync(account, packSpending(record));
    for (const record of usages) {
      usage.putSync([record.account, record.hour, record.keyId, record.modelId], packUsage(record));
    }
    if (responses !== undefined) this.answers.apply(responses);
    if (clocks !== undefined) putClocks(this.#tables, clocks);
    for (const [key, record] of keyUses ?? []) this.keys.putUse(key, record);
    for (const [scope, record] of quotaUses ?? []) {
      // A call may end after its key or group was deleted.
      if (this.quotaUses.ownerOf(scope) !== undefined) this.quotaUses.put(scope, record);
    }
  }

  /** By how much the wall clock was set forward since the last flush; 0 if unknown (host-clocks.ts). */
  steppedMs(current: HostClocks | undefined): number {
    return steppedMs(this.#tables, current);
  }

  /** A gateway that shares the store calls it once, at its start (flush-mark.ts). Costs an fsync. */
  newFlushMark(slot: number, life: string): FlushMark {
    return new FlushMark(this.#tables, slot, life);
  }

  /** Undefined if no call of that key, model and hour was flushed. */
  findUsage({ account, hour, keyId, modelId }: UsageRowKey): UsageTotals | undefined {
    return findRow(this.#tables.usage, [account, hour, keyId, modelId], readUsage);
  }

  /** Ordered by hour, key id and model id, from `fromRow` of `fromHour` to the last row of `toHour`. */
  *usages({ account, fromHour, fromRow, toHour }: UsageRange): Generator<UsageRecord> {
    const { keyId = '', modelId = '' } = fromRow ?? {};
    const range = { start: [account, fromHour, keyId, modelId], end: [account, toHour + 1, '', ''] };
    for (const [[, hour, keyId, modelId], totals] of rowsIn(this.#tables.usage, readUsage, range))
      yield { account, hour, keyId, modelId, ...totals };
  }

  /** The key that has the slot or had it last. */
  findKeyId(index: KeyIndex): string | undefined {
    return this.keys.findId(index);
  }
}
