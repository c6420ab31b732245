/**
 * Declares what accounts.ts, credits.ts, groups.ts and keys.ts work on: the store, the catalogue, and the
 * live state, which is what the threads of a gateway know besides the store. The creator of the registry
 * (gateway/accounting.ts, gateway/shared-accounting.ts, cli/store-client.ts) chooses the live state:
 *
 *     StoreOnly    of a command, while no gateway runs: there are no threads, so methods do nothing or read
 *                  the store
 *     OwnBuffers   of a gateway that is alone on its store: writes to the buffers that all its threads share
 *     SharedUses   of one of several processes or hosts that share the registry (shared-uses.ts)
 *
 * Main thread of a gateway process, or a command.
 *
 * Must hold: a change is committed to the store before the live state has it, so that no thread acts on what
 * a crash takes back. The one exception is a debit: it is taken from the ledger first, and given back if
 * the transaction fails (credits.ts). A slot of a key or a group is given again only after SlotRest, however
 * the wall clock is set. Tests: test/unit/registry/registry.test.ts,
 * test/unit/registry/registry-money.test.ts, test/unit/registry/registry-keys.test.ts (slots).
 */
import { asWallMs, type AccountIndex, type KeyIndex, type PicoUnits, type WallMs } from '../core/units.js';
import type { Clock } from '../core/clock.js';
import { Calendar } from '../core/calendar.js';
import { AccountDirectory } from './account-directory.js';
import type { AccountRecord, GroupRecord } from './account-record.js';
import { type AccountCounts, flushedStatement, liveStatement } from './account-statement.js';
import type { Ledger } from '../ledger/ledger.js';
import type { SettledQuotas } from '../ledger/scope-quotas.js';
import type { Catalog } from './catalog.js';
import { type InheritedUse, type KeyRecord, type KeyUseRecord } from './key-record.js';
import {
  accountStateOf,
  applyAccount,
  applyGroup,
  applyKey,
  groupIndexOf,
  keyUseOf,
  type LiveBuffers,
  removeGroup,
  restoreKeyUse,
  restoreQuotaUse,
} from './live-buffers.js';
import {
  minuteDayCountsAt,
  flushedUses,
  type LimitedScope,
  quotaUsesOf,
  type QuotaUse,
  type QuotaUseRecord,
  settledQuotasOf,
  type SlotScope,
  type UsedScope,
} from './quota-use.js';
import { invalid } from './record-id.js';
import { flushedUseOf, type RecordStore } from './record-store.js';

export interface RegistryContext {
  readonly store: RecordStore;
  readonly catalog: Catalog;
  readonly clock: Clock;
  /** Slots of the ledger and of the key table (`limits.accounts`, `limits.keys`). */
  readonly accountsMax: number;
  readonly keysMax: number;
  /** Slots of groups (`limits.groups`). */
  readonly groupsMax: number;
  readonly live: LiveState;
  /** Which slots of deleted keys and groups may be given again. */
  readonly slotRest: SlotRest;
}

/**
 * How long the slot of a deleted key or group stays unused: longer than any call runs, because a call names
 * its key by the slot when it ends; and longer than an hour, because usage in memory is found by hour and
 * slot (store/usage-book.ts).
 */
const SLOT_REST_MS = 24 * 3_600_000;

/**
 * Tells which slots have rested for SLOT_REST_MS. Rows on disk have the time of the deletion by the wall
 * clock, which may be set forward by a day while calls run. So a slot rests also by what the wall clock would
 * show if nobody had set it since this object was made, at the start of the process.
 */
export class SlotRest {
  readonly #clock: Clock;
  /** The wall clock less the monotonic clock at the start. */
  readonly #aheadMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#aheadMs = clock.wallMs() - clock.monotonicMs();
  }

  /** A wall-clock time: keys.ts and groups.ts take slots of records that were deleted before it. */
  restedBeforeMs(): WallMs {
    const unsetMs = this.#clock.monotonicMs() + this.#aheadMs;
    return asWallMs(Math.floor(Math.min(this.#clock.wallMs(), unsetMs) - SLOT_REST_MS));
  }
}

/** A key or a group, and the limits that it is to have. (Accounts have those of their plans.) */
type CountedScope = Exclude<SlotScope, { readonly kind: 'account' }> & Pick<LimitedScope, 'limits'>;

/** Returns the present moment in whole milliseconds, as records have moments. */
export function recordMomentMs(clock: Clock): WallMs {
  return asWallMs(Math.floor(clock.wallMs()));
}

/**
 * Call methods that change something after the transaction (`credit` with a negative amount before it);
 * methods that read may be called inside it.
 */
export abstract class LiveState {
  /**
   * Whether a rotation writes the old key's use into the record of the new key, where other processes read
   * it. A process that is alone restores the use in its own buffers instead.
   */
  readonly inheritsByRecord: boolean = false;
  protected readonly store: RecordStore;
  #directory: AccountDirectory | undefined;
  readonly #ledger: Ledger | undefined;

  /** Without a `ledger`, as in a command, all limits count as countable. */
  constructor(store: RecordStore, directory?: AccountDirectory, ledger?: Ledger) {
    this.store = store;
    this.#directory = directory;
    this.#ledger = ledger;
  }

  /**
   * For searches. Filled from the store at the first search, unless recovery filled it. Throws what the store
   * throws, and keeps no part of the accounts: a later search would miss the others.
   */
  directory(): AccountDirectory {
    if (this.#directory !== undefined) return this.#directory;
    const directory = new AccountDirectory();
    for (const record of this.store.accounts()) directory.set(record);
    return (this.#directory = directory);
  }

  openAccount(record: AccountRecord, _catalog: Catalog): void {
    this.#directory?.set(record);
  }

  changeAccount(record: AccountRecord, _catalog: Catalog): void {
    this.#directory?.set(record);
  }

  /** Throws `invalid_parameters` if that key or group needs a quota record of the ledger and none is free. */
  assertCountable(scope: CountedScope): void {
    if (this.#ledger === undefined) return;
    const { keys, groups } = this.#ledger;
    const { limits } = scope;
    if (scope.kind === 'key' ? keys.hasRoom(scope.index, limits) : groups.hasRoom(scope.index, limits))
      return;
    throw invalid(
      'limits beyond requests_per_minute and calls_per_day cannot be counted: as many accounts, keys, groups and rules ' +
        'for models have such limits as one gateway can count. Restart it if many of them were deleted',
    );
  }

  /** Adds the group, or applies its changed limits. */
  abstract putGroup(record: GroupRecord): void;
  abstract removeGroup(record: GroupRecord): void;
  /**
   * Adds `amount`, which may be negative, to the balance that calls are admitted against. Returns false and
   * changes nothing if the balance, less what calls hold, does not cover a negative amount.
   */
  abstract credit(account: AccountIndex, amount: PicoUnits): boolean;
  /** Adds the key, or applies its changed status, expiry and limits. */
  abstract putKey(record: KeyRecord): void;
  abstract removeKey(key: KeyIndex): void;
  abstract restoreKeyUse(key: KeyIndex, use: KeyUseRecord, nowMs: WallMs): void;
  abstract restoreQuotaUse(scope: UsedScope, use: QuotaUseRecord, nowMs: WallMs): void;
  abstract quotasOf(scope: LimitedScope, nowMs: WallMs): QuotaUse[];
  abstract statementOf(record: AccountRecord, nowMs: WallMs): AccountCounts;
  /** Undefined if the key was never used. */
  abstract keyUseOf(key: KeyIndex, nowMs: WallMs): KeyUseRecord | undefined;
  protected abstract settledOf(key: KeyIndex): SettledQuotas | undefined;

  /** What a rotated key has used of its own limits, for its successor; undefined if nothing is known. */
  useForSuccessor({ index }: KeyRecord, nowMs: WallMs): InheritedUse | undefined {
    const use = this.keyUseOf(index, nowMs);
    if (use === undefined) return undefined;
    const { minuteUsed, dayNumber, dayCalls, takenMs } = use;
    const quotas = this.settledOf(index);
    return { minuteUsed, dayNumber, dayCalls, takenMs, ...(quotas && { quotas }) };
  }
}

/** Statements show the last flush, and a change takes effect when a gateway starts. */
export class StoreOnly extends LiveState {
  protected readonly calendar: Calendar;

  /** `timezone` is `quota_timezone`. A SharedUses gets the directory that its ChangeApplier fills. */
  constructor(store: RecordStore, directory?: AccountDirectory, timezone?: string, ledger?: Ledger) {
    super(store, directory, ledger);
    this.calendar = new Calendar(timezone);
  }

  putGroup(_record: GroupRecord): void {
    // A command has no threads.
  }

  removeGroup(_record: GroupRecord): void {
    // A command has no threads.
  }

  credit(_account: AccountIndex, _amount: PicoUnits): boolean {
    return true;
  }

  putKey(_record: KeyRecord): void {
    // A command has no threads.
  }

  removeKey(_key: KeyIndex): void {
    // A command has no threads.
  }

  restoreKeyUse(_key: KeyIndex, _use: KeyUseRecord, _nowMs: WallMs): void {
    // The store has the use.
  }

  restoreQuotaUse(_scope: UsedScope, _use: QuotaUseRecord, _nowMs: WallMs): void {
    // The store has the use.
  }

  quotasOf(scope: LimitedScope, nowMs: WallMs): QuotaUse[] {
    const { counts, quotas } = flushedUseOf(this.store, scope);
    return quotaUsesOf(
      scope.limits,
      minuteDayCountsAt(counts, nowMs),
      flushedUses(quotas, this.calendar, nowMs),
      nowMs,
    );
  }

  statementOf(record: AccountRecord, nowMs: WallMs): AccountCounts {
    return flushedStatement(record, this.store.findSpending(record.index), nowMs);
  }

  keyUseOf(key: KeyIndex, _nowMs: WallMs): KeyUseRecord | undefined {
    return this.store.keys.findUse(key);
  }

  protected settledOf(key: KeyIndex): SettledQuotas | undefined {
    const record = this.store.quotaUses.find({ kind: 'key', index: key });
    return record && settledQuotasOf(record);
  }
}

/** A change is in force on all threads when the method returns. */
export class OwnBuffers extends LiveState {
  readonly #live: LiveBuffers;

  constructor(store: RecordStore, live: LiveBuffers, directory?: AccountDirectory) {
    super(store, directory, live.ledger);
    this.#live = live;
  }

  override openAccount(record: AccountRecord, catalog: Catalog): void {
    super.openAccount(record, catalog);
    const { ledger } = this.#live;
    const group = groupIndexOf(record, this.#live, this.store);
    ledger.openAccount(record.index, accountStateOf(record, undefined, catalog, group));
    ledger.setGroup(record.index, group);
  }

  override changeAccount(record: AccountRecord, catalog: Catalog): void {
    super.changeAccount(record, catalog);
    applyAccount(record, this.#live, catalog, this.store);
  }

  putGroup(record: GroupRecord): void {
    applyGroup(record, this.#live, this.store);
  }

  removeGroup({ index }: GroupRecord): void {
    removeGroup(index, this.#live);
  }

  quotasOf(scope: LimitedScope, nowMs: WallMs): QuotaUse[] {
    const { ledger } = this.#live;
    const { limits } = scope;
    if (scope.kind === 'account')
      return quotaUsesOf(limits, ledger.snapshot(scope.index), ledger.useOf(scope, limits), nowMs);
    const counts =
      scope.kind === 'key' ? ledger.keys.countsOf(scope.index) : ledger.groups.countsOf(scope.index);
    return quotaUsesOf(limits, counts, ledger.useOf(scope), nowMs);
  }

  credit(account: AccountIndex, amount: PicoUnits): boolean {
    return this.#live.ledger.credit(account, amount);
  }

  putKey(record: KeyRecord): void {
    applyKey(record, this.#live);
  }

  removeKey(key: KeyIndex): void {
    this.#live.keyTable.remove(key);
  }

  restoreKeyUse(key: KeyIndex, use: KeyUseRecord, nowMs: WallMs): void {
    restoreKeyUse(key, use, this.#live, nowMs);
  }

  restoreQuotaUse(scope: UsedScope, use: QuotaUseRecord, nowMs: WallMs): void {
    restoreQuotaUse(scope, use, this.#live, nowMs);
  }

  protected settledOf(key: KeyIndex): SettledQuotas | undefined {
    return this.#live.ledger.settledOf({ kind: 'key', index: key });
  }

  statementOf(record: AccountRecord, nowMs: WallMs): AccountCounts {
    return liveStatement(record, this.#live.ledger.snapshot(record.index), nowMs);
  }

  keyUseOf(key: KeyIndex, nowMs: WallMs): KeyUseRecord | undefined {
    return keyUseOf(key, this.#live, nowMs);
  }
}
