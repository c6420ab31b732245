/**
 * What the registry asks of a store, so that it need not know which one it has. Main thread.
 *
 * Reads and writes are synchronous. Writes are made inside `commit` alone.
 */
import type { AccountIndex, KeyIndex, WallMs } from '../core/units.js';
import type { AccountRecord, CreditRecord, CreditRequestRecord, SpendingRecord } from './account-record.js';
import type { KeyRecord, KeyUseRecord } from './key-record.js';
import type { UsageRange, UsageRecord } from './usage-report.js';

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
  /** Who has the slot. */
  findAccountId(index: AccountIndex): string | undefined;
  /** Slots of the accounts whose id begins so, at most `limit`. */
  findAccountsByIdStart(start: string, limit: number): AccountIndex[];
  /** All accounts, in no order that means anything. */
  accounts(): Iterable<AccountRecord>;
  /** The lowest slot that no account has. */
  freeAccountIndex(): AccountIndex;
  putAccount(record: AccountRecord): void;

  /** The first line of an account's journal, which has none. */
  openCredits(account: AccountIndex, record: CreditRecord): void;
  addCredit(account: AccountIndex, record: CreditRecord): void;
  /** Lines of an account's journal from number `from` on, at most `limit`, oldest first. */
  listCredits(account: AccountIndex, from: number, limit: number): Page<CreditRecord>;
  findCreditRequest(account: AccountIndex, idempotencyKey: string): CreditRequestRecord | undefined;
  putCreditRequest(account: AccountIndex, idempotencyKey: string, record: CreditRequestRecord): void;
  /** Undefined for an account that has never been flushed. */
  findSpending(account: AccountIndex): SpendingRecord | undefined;

  /** In the order of accounts and, within one, of hours. */
  usages(range: UsageRange): Iterable<UsageRecord>;

  readonly keys: KeyStore;
}

export interface KeyStore {
  find(id: string): KeyRecord | undefined;
  /** Undefined where no key has the slot. */
  findAt(index: KeyIndex): KeyRecord | undefined;
  /** Keys of that name, at most `limit`. */
  findByName(name: string, limit: number): KeyRecord[];
  /** The account's keys of that name. Costs some µs, and 2 for each key of the account where many keys have the name. */
  findOfAccount(account: AccountIndex, name: string): KeyRecord[];
  /** Keys from slot `from` on, at most `limit`; of all accounts where none is given. */
  list(account: AccountIndex | undefined, from: number, limit: number): Page<KeyRecord>;
  /** Undefined for a key that was never used, or not flushed since. */
  findUse(index: KeyIndex): KeyUseRecord | undefined;
  putUse(key: KeyIndex, record: KeyUseRecord): void;
  /** Takes so many slots: those of keys that were deleted before `restedMs`, longest unused first, then such as were never used. */
  takeIndexes(count: number, restedMs: WallMs): KeyIndex[];
  put(record: KeyRecord): void;
  /** Takes the use that was made of it out too. */
  remove(record: KeyRecord, nowMs: WallMs): void;
}
