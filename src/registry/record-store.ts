/**
 * What the registry asks of a store, so that it need not know which one it has. Main thread.
 *
 * Reads and writes are synchronous. Writes are made inside `commit` alone.
 */
import type { AccountIndex, KeyIndex, WallMs } from '../core/units.js';
import type { AccountRecord, CreditRecord, SpendingRecord } from './account-record.js';
import type { KeyRecord } from './key-record.js';
import type { UsageRange, UsageRecord } from './usage-record.js';

/** Items in the order of their slots; `next` is the cursor that continues, absent after the last. */
export interface Page<Item> {
  readonly items: readonly Item[];
  readonly next: number | undefined;
}

export interface RecordStore {
  /**
   * Runs `work` as one transaction and returns what it returns, after everything is flushed to disk; a throw undoes all
   * of it. Costs a disk flush; waits while another process writes.
   */
  commit<Result>(work: () => Result): Result;

  findAccount(id: string): AccountRecord | undefined;
  findAccountByName(name: string): AccountRecord | undefined;
  /** Accounts from slot `from` on, at most `limit`. */
  listAccounts(from: number, limit: number): Page<AccountRecord>;
  /** The lowest slot that no account has. */
  freeAccountIndex(): AccountIndex;
  putAccount(record: AccountRecord): void;

  addCredit(account: AccountIndex, record: CreditRecord): void;
  /** Undefined for an account that has never been flushed. */
  findSpending(account: AccountIndex): SpendingRecord | undefined;

  /** In the order of accounts and, within one, of hours. */
  usages(range: UsageRange): Iterable<UsageRecord>;

  findKey(id: string): KeyRecord | undefined;
  /** Keys of that name, at most `limit`. */
  findKeysByName(name: string, limit: number): KeyRecord[];
  /** Keys from slot `from` on, at most `limit`; of all accounts where none is given. */
  listKeys(account: AccountIndex | undefined, from: number, limit: number): Page<KeyRecord>;
  /** Takes the slot of a key that was deleted before `restedMs`, the one longest unused, else the first never used. */
  takeKeyIndex(restedMs: WallMs): KeyIndex;
  putKey(record: KeyRecord): void;
  removeKey(record: KeyRecord, nowMs: WallMs): void;
}
