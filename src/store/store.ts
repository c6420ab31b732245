/**
 * The store: records in LMDB under the data directory. Main thread of the gateway, or a command while no gateway runs.
 *
 * Every method reads or writes synchronously; a lookup costs some microseconds, a commit one disk flush.
 */
import { asAccountIndex, asKeyIndex, type AccountIndex, type KeyIndex, type WallMs } from '../core/units.js';
import type { AccountRecord, CreditRecord, SpendingRecord } from '../registry/account-record.js';
import type { KeyRecord } from '../registry/key-record.js';
import type { Page, RecordStore } from '../registry/record-store.js';
import type { UsageKey, UsageRange, UsageRecord, UsageTotals } from '../registry/usage-record.js';
import {
  damaged,
  packAccount,
  packCredit,
  packKey,
  packSpending,
  packUsage,
  readAccount,
  readCredit,
  readKey,
  readSpending,
  readUsage,
} from './record-codec.js';
import { openTables, type Tables } from './tables.js';

const KEY_SLOTS_USED = 'key_slots_used';

/** Above every slot, and still a key that LMDB orders after them. */
const AFTER_ALL_SLOTS = Number.MAX_SAFE_INTEGER;

/** Both sorts of rows that a flush writes; they agree with each other, so they are written together. */
export interface BooksRows {
  readonly spendings: ReadonlyMap<AccountIndex, SpendingRecord>;
  readonly usages: Iterable<UsageRecord>;
}

export class Store implements RecordStore {
  readonly #tables: Tables;

  /** Opens or makes the store under `dataPath`. Throws `StoreFault`. */
  constructor(dataPath: string) {
    this.#tables = openTables(dataPath);
  }

  /** Of the file, for messages. */
  get path(): string {
    return this.#tables.path;
  }

  async close(): Promise<void> {
    await this.#tables.root.close();
  }

  commit<Result>(work: () => Result): Result {
    return this.#tables.root.transactionSync(work);
  }

  findAccount(id: string): AccountRecord | undefined {
    const stored = this.#tables.accounts.get(id);
    return stored === undefined ? undefined : readAccount(stored, this.#place('accounts', id));
  }

  findAccountByName(name: string): AccountRecord | undefined {
    const id = this.#tables.accountNames.get(name);
    return id === undefined ? undefined : this.#accountOf(id);
  }

  /** Who has the slot. */
  findAccountId(index: AccountIndex): string | undefined {
    const id = this.#tables.accountSlots.get(index);
    if (id !== undefined && typeof id !== 'string') throw damaged(this.#place('account_slots', index));
    return id;
  }

  listAccounts(from: number, limit: number): Page<AccountRecord> {
    const range = this.#tables.accountSlots.getRange({ start: from, limit: limit + 1 });
    const entries = Array.from(range);
    return {
      items: entries.slice(0, limit).map(({ value }) => this.#accountOf(value)),
      next: entries[limit]?.key,
    };
  }

  freeAccountIndex(): AccountIndex {
    const [last] = Array.from(this.#tables.accountSlots.getKeys({ reverse: true, limit: 1 }));
    return asAccountIndex(last === undefined ? 0 : last + 1);
  }

  putAccount(record: AccountRecord): void {
    this.#tables.accounts.putSync(record.id, packAccount(record));
    this.#tables.accountSlots.putSync(record.index, record.id);
    this.#tables.accountNames.putSync(record.name, record.id);
  }

  /** All accounts, in no order that means anything; for recovery. */
  *accounts(): Generator<AccountRecord> {
    for (const { key, value } of this.#tables.accounts.getRange()) {
      yield readAccount(value, this.#place('accounts', key));
    }
  }

  addCredit(account: AccountIndex, record: CreditRecord): void {
    const last = this.#tables.credits.getKeys({
      start: [account, AFTER_ALL_SLOTS],
      end: [account],
      reverse: true,
      limit: 1,
    });
    const [lastKey] = Array.from(last);
    this.#tables.credits.putSync([account, lastKey === undefined ? 0 : lastKey[1] + 1], packCredit(record));
  }

  /** An account's journal, oldest first: its sum is the record's `credited`. */
  listCredits(account: AccountIndex): CreditRecord[] {
    const range = this.#tables.credits.getRange({ start: [account], end: [account, AFTER_ALL_SLOTS] });
    return Array.from(range, ({ key, value }) => readCredit(value, this.#place('credits', key.join('/'))));
  }

  findSpending(account: AccountIndex): SpendingRecord | undefined {
    const stored = this.#tables.spending.get(account);
    return stored === undefined ? undefined : readSpending(stored, this.#place('spending', account));
  }

  /** Writes absolute totals, all in one transaction; they are on disk when it returns. */
  putBooks({ spendings, usages }: BooksRows): void {
    const { spending, usage } = this.#tables;
    this.commit(() => {
      for (const [account, record] of spendings) spending.putSync(account, packSpending(record));
      for (const record of usages) {
        usage.putSync([record.account, record.hour, record.keyId, record.modelId], packUsage(record));
      }
    });
  }

  /** Undefined where there was no such call in that hour. */
  findUsage({ account, hour, keyId, modelId }: UsageKey): UsageTotals | undefined {
    const key: [number, number, string, string] = [account, hour, keyId, modelId];
    const stored = this.#tables.usage.get(key);
    return stored === undefined ? undefined : readUsage(stored, this.#place('usage', key.join('/')));
  }

  /** In the order of accounts and, within one, of hours. */
  *usages({ account, fromHour, toHour }: UsageRange): Generator<UsageRecord> {
    const range =
      account === undefined
        ? this.#tables.usage.getRange()
        : this.#tables.usage.getRange({
            start: [account, fromHour, '', ''],
            end: [account, toHour + 1, '', ''],
          });
    for (const { key, value } of range) {
      const [index, hour, keyId, modelId] = key;
      if (hour < fromHour || hour > toHour) continue;
      const totals = readUsage(value, this.#place('usage', key.join('/')));
      yield { account: asAccountIndex(index), hour, keyId, modelId, ...totals };
    }
  }

  findKey(id: string): KeyRecord | undefined {
    const stored = this.#tables.keys.get(id);
    return stored === undefined ? undefined : readKey(stored, this.#place('keys', id));
  }

  /** Who has the slot, or had it last: a call may end after its key was deleted. */
  findKeyId(index: KeyIndex): string | undefined {
    const id = this.#tables.keyIds.get(index);
    if (id !== undefined && typeof id !== 'string') throw damaged(this.#place('key_ids', index));
    return id;
  }

  findKeysByName(name: string, limit: number): KeyRecord[] {
    const range = this.#tables.keyNames.getKeys({ start: [name, ''], limit });
    return Array.from(range)
      .filter(([found]) => found === name)
      .map(([, id]) => this.#keyOf(id));
  }

  listKeys(account: AccountIndex | undefined, from: number, limit: number): Page<KeyRecord> {
    const ids =
      account === undefined
        ? this.#tables.keySlots.getRange({ start: from, limit: limit + 1 })
        : this.#tables.keysOfAccount
            .getRange({ start: [account, from], end: [account, AFTER_ALL_SLOTS], limit: limit + 1 })
            .map(({ key, value }) => ({ key: key[1], value }));
    const entries = Array.from(ids);
    return {
      items: entries.slice(0, limit).map(({ value }) => this.#keyOf(value)),
      next: entries[limit]?.key,
    };
  }

  takeKeyIndex(restedMs: WallMs): KeyIndex {
    const { keySlotsFree, meta } = this.#tables;
    const [oldest] = Array.from(keySlotsFree.getKeys({ limit: 1 }));
    if (oldest !== undefined && oldest[0] < restedMs) {
      keySlotsFree.removeSync(oldest);
      return asKeyIndex(oldest[1]);
    }
    const unused = meta.get(KEY_SLOTS_USED) ?? 0;
    if (typeof unused !== 'number') throw damaged(this.#place('meta', KEY_SLOTS_USED));
    meta.putSync(KEY_SLOTS_USED, unused + 1);
    return asKeyIndex(unused);
  }

  putKey(record: KeyRecord): void {
    this.#tables.keys.putSync(record.id, packKey(record));
    this.#tables.keySlots.putSync(record.index, record.id);
    this.#tables.keyIds.putSync(record.index, record.id);
    this.#tables.keysOfAccount.putSync([record.accountIndex, record.index], record.id);
    this.#tables.keyNames.putSync([record.name, record.id], true);
  }

  removeKey(record: KeyRecord, nowMs: WallMs): void {
    this.#tables.keys.removeSync(record.id);
    this.#tables.keySlots.removeSync(record.index);
    this.#tables.keySlotsFree.putSync([nowMs, record.index], true);
    this.#tables.keysOfAccount.removeSync([record.accountIndex, record.index]);
    this.#tables.keyNames.removeSync([record.name, record.id]);
  }

  /** All keys, in no order that means anything; for recovery. */
  *keys(): Generator<KeyRecord> {
    for (const { key, value } of this.#tables.keys.getRange()) {
      yield readKey(value, this.#place('keys', key));
    }
  }

  #accountOf(id: unknown): AccountRecord {
    const record = typeof id === 'string' ? this.findAccount(id) : undefined;
    if (record === undefined) throw damaged(this.#place('accounts', String(id)));
    return record;
  }

  #keyOf(id: unknown): KeyRecord {
    const record = typeof id === 'string' ? this.findKey(id) : undefined;
    if (record === undefined) throw damaged(this.#place('keys', String(id)));
    return record;
  }

  /** Names a record for whoever has to look at a damaged one. */
  #place(table: string, key: string | number): string {
    return `${this.#tables.path}: record ${key} of table ${table}`;
  }
}
