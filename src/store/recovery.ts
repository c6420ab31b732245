/**
 * Recovery: fills the shared buffers (ledger, key table, names) from the store when a gateway starts.
 * gateway/accounting.ts and shared-accounting.ts call `recover` on the main thread, before any listener runs.
 *
 * An account can spend what was credited less what was spent. Holds are not on disk: their calls are gone.
 *
 * Must hold: groups are filled before accounts, and keys before their uses. A row that would let calls pass a
 * limit or a balance stops the start with an error that names the row, before any call is served. `recover`
 * stays synchronous: lmdb reads from one snapshot within a turn of the event loop, and other processes of the
 * group may write meanwhile.
 */
import { CREDITED_PICO_UNITS_MAX } from '../ledger/balance.js';
import type { Ledger } from '../ledger/ledger.js';
import type { AccountDirectory } from '../registry/account-directory.js';
import type { Catalog } from '../registry/catalog.js';
import type { GroupNames } from '../registry/group-names.js';
import {
  accountStateOf,
  applyGroup,
  applyKey,
  brokenPathText,
  findPlanIndex,
  groupIndexOf,
  groupPathTo,
  restoreKeyUse,
  restoreModelUse,
  restoreQuotaUse,
} from '../registry/live-buffers.js';
import type { KeyTable } from '../registry/key-table.js';
import type { Clock } from '../core/clock.js';
import { asPicoUnits, asWallMs, type WallMs } from '../core/units.js';
import { hostClocks } from './host-clocks.js';
import type { SpentTotals } from './spent-totals.js';
import type { Log } from '../telemetry/log.js';
import type { AccountRecord, SpendingRecord } from '../registry/account-record.js';
import { damaged } from './record-codec.js';
import { StoreError } from './store-file.js';
import type { Store } from './store.js';

/** Accounts without a plan that are logged singly. Further accounts are only counted. */
const ACCOUNTS_LOGGED_MAX = 10;

/** Longer than any month: uses older than this belong to periods that are over. */
const LONGEST_MONTH_MS = 32 * 24 * 3_600_000;

const NOTHING = asPicoUnits(0n);
/** For a key whose limits processes share: the counts on disk are left to the coordinator. */
const NO_KEY_COUNTS = { dayNumber: 0, dayCalls: 0, minuteUsed: 0 };
/** For an account whose limits processes share: the coordinator grants money and counts. */
const NOTHING_GRANTED = { credited: NOTHING, spent: NOTHING, uncovered: NOTHING, dayNumber: 0, dayCalls: 0 };

/** All buffers, `totals` and `directory` must be empty: `recover` clears nothing. */
interface RecoveryOptions {
  readonly store: Store;
  readonly ledger: Ledger;
  /**
   * Gets what each account has spent. Undefined if several processes share the limits: then a coordinator
   * grants money and quotas.
   */
  readonly totals: SpentTotals | undefined;
  readonly keyTable: KeyTable;
  /** Gets the name of every group. */
  readonly groupNames: GroupNames;
  /** Gets every account. */
  readonly directory?: AccountDirectory | undefined;
  readonly catalog: Catalog;
  /** Capacities of the shared tables (`limits.accounts`, `limits.keys`, `limits.groups`). */
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly groupsMax: number;
  readonly clock: Clock;
  readonly log: Log;
}

/** Fills empty buffers. Throws StoreError. Takes about 3 µs an account and 4 µs a key. */
export function recover(options: RecoveryOptions): void {
  // Groups first, because an account whose group is not in the buffers would be disabled.
  recoverGroups(options);
  recoverAccounts(options);
  recoverKeys(options);
  if (options.totals !== undefined) restoreQuotaUses(options);
}

function recoverGroups(options: RecoveryOptions): void {
  const { store, groupsMax } = options;
  for (const record of store.groups.all()) {
    const path = groupPathTo(record, store);
    if (path === undefined) throw damaged(`${store.path}: ${brokenPathText(record)}. The table of groups`);
    // Ancestors too, because `applyGroup` opens them first.
    for (const { index } of path) assertCapacity(index, groupsMax, 'groups');
    applyGroup(record, options, store);
  }
}

/**
 * Restores used quotas, for a gateway that has the limits for itself. If several processes share the limits,
 * the coordinator reads these rows.
 */
function restoreQuotaUses(options: RecoveryOptions): void {
  const { store, catalog } = options;
  const nowMs = flushTimeNow(options);
  const modelIndices = new Map(catalog.models.map(({ id }, index) => [id, index]));
  for (const [scope, use] of store.quotaUses.all()) {
    if (nowMs - use.takenMs >= LONGEST_MONTH_MS) continue;
    if (scope.kind !== 'model') {
      restoreQuotaUse(scope, use, options, nowMs);
      continue;
    }
    // A model that is not in the settings may come back, so its rows stay on disk.
    const modelIndex = modelIndices.get(scope.modelId);
    if (modelIndex !== undefined) restoreModelUse(scope.index, modelIndex, use, options, nowMs);
  }
}

function recoverAccounts(options: RecoveryOptions): void {
  const { store, ledger, totals, directory, catalog, accountsMax, log } = options;
  let planlessCount = 0;
  const nowMs = flushTimeNow(options);
  const isCopyOfHosts = totals === undefined && store.copy.position() !== undefined;
  for (const record of store.accounts()) {
    assertCapacity(record.index, accountsMax, 'accounts');
    const spending = store.findSpending(record.index);
    assertNoProblem(store, record, amountProblemOf(record, spending, isCopyOfHosts));
    const group = groupIndexOf(record, options, store);
    const state = accountStateOf(record, spending, catalog, group);
    ledger.openAccount(record.index, totals === undefined ? { ...state, ...NOTHING_GRANTED } : state);
    ledger.setGroup(record.index, group);
    directory?.set(record);
    if (spending !== undefined && totals !== undefined) {
      totals.restore(record.index, spending.spent, spending.uncovered);
      ledger.minute.restore(record.index, spending.minuteUsed, nowMs - spending.takenMs);
    }
    if (findPlanIndex(catalog, record.planId) === undefined) logPlanless(record, ++planlessCount, log);
  }
  if (planlessCount > ACCOUNTS_LOGGED_MAX)
    log.warn('more accounts are disabled for the same reason', { accounts: planlessCount });
}

/** `count`: how many accounts without a plan there are so far, with this one. */
function logPlanless({ id, name, planId }: AccountRecord, count: number, log: Log): void {
  if (count > ACCOUNTS_LOGGED_MAX) return;
  log.warn('account is disabled: its plan is not in the settings; add it, or use "accounts set-plan"', {
    account: id,
    name,
    plan: planId,
  });
}

function recoverKeys(options: RecoveryOptions): void {
  const { store, totals, accountsMax, keysMax } = options;
  const nowMs = flushTimeNow(options);
  for (const record of store.keys.all()) {
    assertCapacity(record.index, keysMax, 'keys');
    // All accounts have slots below, so no account has this one.
    if (record.accountIndex >= accountsMax)
      throw damaged(`${store.path}: the account of key ${record.id} (${record.name})`);
    applyKey(record, options);
  }
  // After all keys, because the use of a key that is not in the table is left out. All rows are read in their
  // order, in 1.1 µs each: to look up the row of each key would take 1.9 µs.
  for (const [key, use] of store.keys.uses()) {
    restoreKeyUse(key, totals === undefined ? { ...use, ...NO_KEY_COUNTS } : use, options, nowMs);
  }
}

/**
 * Returns what the wall clock would show now if nobody had set it since the last flush. Without this each
 * flushed row would look an hour older after the clock was set forward by an hour.
 */
function flushTimeNow({ store, clock }: RecoveryOptions): WallMs {
  return asWallMs(clock.wallMs() - store.steppedMs(hostClocks(clock)));
}

/** Throws StoreError `unreadable` if the slot `index` is none of the `max` slots of the shared table. */
function assertCapacity(index: number, max: number, records: 'accounts' | 'groups' | 'keys'): void {
  if (index < max) return;
  const message = `The store has more ${records} than limits.${records} (${max}) allows: raise it to at least ${index + 1}.`;
  throw new StoreError('unreadable', message);
}

/**
 * Says what is wrong with the amounts; undefined if they can be right. A debit is rejected beyond the balance
 * and a charge stops at the balance, so this program never leaves less than nothing, or more than the
 * ledger's words can hold. `isCopyOfHosts`: hosts share the registry. Then a credit may be spent here before
 * this host has copied it, so more may be spent than credited. The ledger takes no money from such a row: the
 * coordinator grants it.
 */
function amountProblemOf(
  { credited }: AccountRecord,
  spending: SpendingRecord | undefined,
  isCopyOfHosts: boolean,
): string | undefined {
  const { spent, uncovered } = spending ?? { spent: 0n, uncovered: 0n };
  if (spent > credited && !isCopyOfHosts) return 'more was spent than credited';
  if (credited > CREDITED_PICO_UNITS_MAX || uncovered > CREDITED_PICO_UNITS_MAX)
    return 'more was credited, or left uncovered, than an account can have';
  return spent < 0n || uncovered < 0n ? 'an amount is negative' : undefined;
}

/** Throws StoreError `damaged` if the account has a problem with its amounts. */
function assertNoProblem(store: Store, record: AccountRecord, problem: string | undefined): void {
  if (problem === undefined) return;
  throw new StoreError(
    'damaged',
    `${store.path}: the books of account ${record.id} (${record.name}) are damaged, record ${record.index} of table ` +
      `spending: ${problem}. Restore the store from a backup; "tollgate audit" tells what differs.`,
  );
}
