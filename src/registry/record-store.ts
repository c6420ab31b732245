/**
 * Declares what the registry needs of a store; store/store.ts is the only implementation. These are
 * interfaces because src/store imports src/registry, which must not import src/store. The registry
 * (accounts.ts, keys.ts and the like) makes its changes by `commitAndApply`. Who needs a scope of any kind
 * reads it by `findScope` and `flushedUseOf`. Main thread.
 *
 * A slot is the number that fields call `index`. `put` adds a record, or replaces the one with its id.
 * Methods throw StoreError for a damaged row.
 *
 * Must hold: reads and writes are synchronous, and writes are made only inside `commit`, so that a throw
 * undoes all of a change. Tests: test/unit/store/store.test.ts (a throw undoes the whole commit; pages; slots
 * rest), test/unit/registry/registry-keys.test.ts (names of keys), test/unit/registry/groups.test.ts,
 * test/unit/registry/registry.failed-commits.test.ts (commitAndApply).
 */
import {
  type AccountIndex,
  asAccountIndex,
  asKeyIndex,
  type GroupIndex,
  type KeyIndex,
  type WallMs,
} from '../core/units.js';
import type {
  AccountRecord,
  CreditRecord,
  CreditRequestRecord,
  GroupRecord,
  OperatorRecord,
  SpendingRecord,
} from './account-record.js';
import type { KeyRecord, KeyUseRecord } from './key-record.js';
import type { ChangeStore } from './operator-change.js';
import { type FlushedCounts, minuteDayCountsOf, type QuotaUseRecord, type UsedScope } from './quota-use.js';
import type { UsageRange, UsageRecord } from './usage-report.js';

/** Items from a slot on, or from the number of a journal's line on, in that order. `next`: where to go on. */
export interface Page<Item> {
  readonly items: readonly Item[];
  /** Undefined if there are no more. */
  readonly next: number | undefined;
}

export interface RecordStore {
  /**
   * Runs `work` as one transaction and returns its result when everything is on disk; a throw of `work`
   * undoes all of it. Costs an fsync; blocks the thread while another process writes.
   */
  commit<Result>(work: () => Result): Result;
  /** Later reads see what is on disk by now, whoever committed it and however the commit ended. */
  refresh(): void;

  findAccount(id: string): AccountRecord | undefined;
  findAccountByName(name: string): AccountRecord | undefined;
  listAccounts(from: number, limit: number): Page<AccountRecord>;
  /** The id of the account that has the slot; undefined if no account has it. */
  findAccountId(index: AccountIndex): string | undefined;
  /** Slots of at most `limit` accounts whose id begins with `start`. */
  findAccountsByIdStart(start: string, limit: number): AccountIndex[];
  /** All accounts, in no particular order. */
  accounts(): Iterable<AccountRecord>;
  /** The lowest slot that no account has. */
  freeAccountIndex(): AccountIndex;
  putAccount(record: AccountRecord): void;

  /** Writes the opening balance, the first line of the journal of an account that has no lines yet. */
  openCredits(account: AccountIndex, record: CreditRecord): void;
  /** Appends a line to the journal. */
  addCredit(account: AccountIndex, record: CreditRecord): void;
  /** Returns at most `limit` lines of an account's journal from number `from` on, oldest first. */
  listCredits(account: AccountIndex, from: number, limit: number): Page<CreditRecord>;
  /** Undefined if no credit of the account was requested with this idempotency key. */
  findCreditRequest(account: AccountIndex, idempotencyKey: string): CreditRequestRecord | undefined;
  putCreditRequest(account: AccountIndex, idempotencyKey: string, record: CreditRequestRecord): void;
  /** Undefined for an account that was never flushed. */
  findSpending(account: AccountIndex): SpendingRecord | undefined;

  /** Ordered by hour. */
  usages(range: UsageRange): Iterable<UsageRecord>;

  readonly groups: GroupStore;
  readonly keys: KeyStore;
  readonly operators: OperatorStore;
  readonly operatorChanges: ChangeStore;
  readonly quotaUses: {
    /** Undefined if no flush has written the use of the scope. */
    find(scope: UsedScope): QuotaUseRecord | undefined;
    /** Adds or replaces the use of a scope. */
    put(scope: UsedScope, record: QuotaUseRecord): void;
  };
}

export interface GroupStore {
  find(id: string): GroupRecord | undefined;
  findByName(name: string): GroupRecord | undefined;
  /** Undefined if no group has the slot. */
  findAt(index: GroupIndex): GroupRecord | undefined;
  /** Returns at most `limit` groups from slot `from` on. */
  list(from: number, limit: number): Page<GroupRecord>;
  /** In no particular order. */
  all(): Iterable<GroupRecord>;
  /** Groups whose parent is `id`, by slot. */
  childrenOf(id: string): GroupRecord[];
  /** The slots of accounts that are in the group itself, at most `limit` of them. */
  accountsOf(id: string, limit: number): AccountIndex[];
  /**
   * Takes a slot below `slotsMax` whose group was deleted before `deletedBeforeMs`, the longest unused first.
   * If there is none, takes a slot that was never used, which may be `slotsMax` or above: callers check.
   */
  takeIndex(deletedBeforeMs: WallMs, slotsMax: number): GroupIndex;
  put(record: GroupRecord): void;
  /** Removes the group and its use. Its slot rests from `nowMs` on. */
  remove(record: GroupRecord, nowMs: WallMs): void;
}

export interface KeyStore {
  find(id: string): KeyRecord | undefined;
  /** Undefined if no key has the slot. */
  findAt(index: KeyIndex): KeyRecord | undefined;
  /** All keys of that name, in no particular order. Reads a key only when the caller asks for the next. */
  eachOfName(name: string): Generator<KeyRecord>;
  /**
   * Returns the account's keys of that name. Takes some µs. If many keys of all accounts have the name, it
   * looks at all keys of the account instead, 2 µs each.
   */
  findOfAccount(account: AccountIndex, name: string): KeyRecord[];
  /** Returns at most `limit` keys from slot `from` on, of all accounts if none is given. */
  list(account: AccountIndex | undefined, from: number, limit: number): Page<KeyRecord>;
  /** Undefined if the key was never used, or was not flushed since. */
  findUse(index: KeyIndex): KeyUseRecord | undefined;
  putUse(key: KeyIndex, record: KeyUseRecord): void;
  /** Takes exactly `count` slots, each as `takeIndex` of a GroupStore does. */
  takeIndexes(count: number, deletedBeforeMs: WallMs, slotsMax: number): KeyIndex[];
  put(record: KeyRecord): void;
  /** Removes the key and its use. Its slot rests from `nowMs` on. */
  remove(record: KeyRecord, nowMs: WallMs): void;
}

/** Rows of operators, by the digest of the token. operators.ts bounds them to OPERATORS_MAX. */
export interface OperatorStore {
  find(digest: string): OperatorRecord | undefined;
  all(): OperatorRecord[];
  put(record: OperatorRecord): void;
  remove(record: OperatorRecord): void;
  /** Last uses on this host by id, in Unix seconds, as they were last put. */
  lastUses(): Map<string, number>;
  putLastUses(uses: ReadonlyMap<string, number>): void;
}

interface ScopeStore extends Pick<RecordStore, 'findAccount' | 'findSpending'> {
  readonly groups: Pick<GroupStore, 'find'>;
  readonly keys: Pick<KeyStore, 'find' | 'findUse'>;
  readonly quotaUses: Pick<RecordStore['quotaUses'], 'find'>;
}

/** The account, key or group with that id. */
export function findScope(
  store: Omit<ScopeStore, 'findSpending' | 'quotaUses'>,
  id: string,
): Exclude<UsedScope, { kind: 'model' }> | undefined {
  const account = store.findAccount(id);
  if (account !== undefined) return { kind: 'account', index: account.index };
  const key = store.keys.find(id);
  if (key !== undefined) return { kind: 'key', index: key.index };
  const group = store.groups.find(id);
  return group && { kind: 'group', index: group.index };
}

/** What flushes have written: `counts` of the minute and of the calls of the day, `quotas` of all else. */
export function flushedUseOf(
  store: Omit<ScopeStore, 'findAccount' | 'groups'>,
  scope: UsedScope,
): { readonly counts: FlushedCounts | undefined; readonly quotas: QuotaUseRecord | undefined } {
  const quotas = store.quotaUses.find(scope);
  const counts =
    scope.kind === 'account'
      ? store.findSpending(asAccountIndex(scope.index))
      : scope.kind === 'key'
        ? store.keys.findUse(asKeyIndex(scope.index))
        : quotas && minuteDayCountsOf(quotas);
  return { counts, quotas };
}

/**
 * Runs `work` in one transaction, then has `apply` change memory as the disk was changed:
 *
 *     what happened                              what memory gets
 *     `commit` has returned                      what `work` returned
 *     `work` threw: nothing is on disk           nothing
 *     `work` returned, and then `commit` threw   what `onDisk` returns; nothing if that is undefined
 *
 * In the third case the rows may be on disk all the same, and memory would be older than the disk until a
 * restart. So the store is read again: `onDisk` gets what `work` returned, and returns the part of it that is
 * on disk. For a record that was there before it may also return the record as the disk has it; if that is
 * the former one, `apply` changes nothing.
 *
 * Throws what `work` or `commit` threw, also after `apply`.
 */
export function commitAndApply<Result extends object>(
  store: Pick<RecordStore, 'commit' | 'refresh'>,
  work: () => Result,
  onDisk: (result: Result) => Result | undefined,
  apply: (result: Result) => void,
): Result {
  // An object, because the compiler would take a plain variable for undefined in `catch`.
  const ofWork: { result?: Result } = {};
  let committed: Result;
  try {
    committed = store.commit(() => (ofWork.result = work()));
  } catch (error) {
    const { result } = ofWork;
    // If the store cannot be read either, memory stays older than the disk until a restart.
    const written =
      result &&
      ifReadable(() => {
        store.refresh();
        return onDisk(result);
      });
    if (written !== undefined) apply(written);
    throw error;
  }
  apply(committed);
  return committed;
}

/** Returns what `read` returns; undefined if it throws, whatever it throws. The audit names damaged rows. */
export function ifReadable<Row>(read: () => Row | undefined): Row | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
