/**
 * From records of accounts and keys to the shared buffers, where every thread of the process sees them. Main
 * thread. Recovery calls it at start; later the registry of a gateway that is alone on its store, or the
 * ChangeApplier of one that is not.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  asPicoUnits,
  asWallMs,
  type AccountIndex,
  type GroupIndex,
  type KeyIndex,
  type WallMs,
} from '../core/units.js';
import type { KeyCounts } from '../ledger/limited-scopes.js';
import type { AccountState, Ledger } from '../ledger/ledger.js';
import type { Log } from '../telemetry/log.js';
import type { AccountDirectory } from './account-directory.js';
import type { AccountRecord, SpendingRecord } from './account-record.js';
import { type Catalog, isListed, NO_PLAN_INDEX } from './catalog.js';
import { isLimited, type KeyRecord, type KeyUseRecord } from './key-record.js';
import type { KeyTable } from './key-table.js';
import type { RecordStore } from './record-store.js';

export interface LiveBuffers {
  readonly ledger: Ledger;
  readonly keyTable: KeyTable;
}

/** Undefined if the catalogue does not have the plan. */
export function findPlanIndex(catalog: Catalog, planId: string): number | undefined {
  const index = catalog.plans.findIndex((plan) => plan.id === planId && isListed(plan));
  return index < 0 ? undefined : index;
}

/**
 * Returns what the ledger is to know of an account. `spending` is undefined for an account that was never
 * flushed. An account whose plan is not in the catalogue has no limits to hold it to, so it is disabled until
 * it has a plan again.
 */
export function accountStateOf(
  record: AccountRecord,
  spending: SpendingRecord | undefined,
  catalog: Catalog,
): AccountState {
  const planIndex = findPlanIndex(catalog, record.planId);
  return {
    credited: record.credited,
    spent: spending?.spent ?? asPicoUnits(0n),
    uncovered: spending?.uncovered ?? asPicoUnits(0n),
    dayNumber: spending?.dayNumber ?? 0,
    dayCalls: spending?.dayCalls ?? 0,
    planIndex: planIndex ?? NO_PLAN_INDEX,
    active: record.active && planIndex !== undefined,
  };
}

/** Applies the plan and the status of an account; its money and counts stay as they are. */
export function applyAccount(record: AccountRecord, { ledger }: LiveBuffers, catalog: Catalog): void {
  const planIndex = findPlanIndex(catalog, record.planId);
  const active = record.active && planIndex !== undefined;
  // In this order no thread looks up a plan that is not there.
  if (!active) ledger.setActive(record.index, false);
  ledger.setPlan(record.index, planIndex ?? NO_PLAN_INDEX);
  ledger.setActive(record.index, active);
}

/** Adds the key to the table, or applies its status and expiry if it is there. */
export function applyKey(record: KeyRecord, live: LiveBuffers): void {
  const { index, digest, accountIndex, active, expiresSeconds } = record;
  const { ledger, keyTable } = live;
  if (!keyTable.has(index)) {
    const limited = isLimited(record);
    if (limited) ledger.keys.open(index, record.limits);
    keyTable.insert(index, digest, accountIndex, active, { expiresSeconds, limited });
    return;
  }
  keyTable.setActive(index, active);
  if (expiresSeconds !== undefined) keyTable.setExpiry(index, expiresSeconds);
}

const NO_COUNTS: KeyCounts = { minuteUsed: 0, dayNumber: 0, dayCalls: 0 };

/** Undefined for a key that was never used and has no limits, or is not in the table. */
export function keyUseOf(key: KeyIndex, live: LiveBuffers, nowMs: WallMs): KeyUseRecord | undefined {
  const { ledger, keyTable } = live;
  if (!keyTable.has(key)) return undefined;
  const lastUsedSeconds = keyTable.lastUsedSecondsOf(key);
  const limited = keyTable.isLimited(key);
  if (lastUsedSeconds === undefined && !limited) return undefined;
  const { minuteUsed, dayNumber, dayCalls } = limited ? ledger.keys.countsOf(key) : NO_COUNTS;
  return { lastUsedSeconds, minuteUsed, dayNumber, dayCalls, takenMs: asWallMs(Math.floor(nowMs)) };
}

/**
 * Restores what a key was used for before any thread counts it; does nothing if the key is not in the table.
 */
export function restoreKeyUse(
  key: KeyIndex,
  use: KeyUseRecord,
  { ledger, keyTable }: LiveBuffers,
  nowMs: WallMs,
): void {
  if (!keyTable.has(key)) return;
  if (use.lastUsedSeconds !== undefined) keyTable.noteUse(key, use.lastUsedSeconds);
  if (keyTable.isLimited(key))
    ledger.keys.open(key, ledger.keys.limitsOf(key), { used: use, ageMs: nowMs - use.takenMs });
}

/** Accounts read in one turn of the event loop: 10 ms. */
const PAGE_ITEMS = 1_000;

/**
 * After a reload: enables accounts that were disabled because their plan was not in the settings and is there
 * now. Resolves with how many. Reads every account, 10 µs each, so it is called only if there are such
 * accounts.
 */
export async function reopenPlanless(
  store: RecordStore,
  ledger: Ledger,
  catalog: () => Catalog,
): Promise<number> {
  let reopened = 0;
  let from: number | undefined = 0;
  while (from !== undefined) {
    const { items, next } = store.listAccounts(from, PAGE_ITEMS);
    for (const { index, planId, active } of items) {
      if (ledger.planIndexOf(index) !== NO_PLAN_INDEX) continue;
      const planIndex = findPlanIndex(catalog(), planId);
      if (planIndex === undefined) continue;
      ledger.setPlan(index, planIndex);
      ledger.setActive(index, active);
      reopened++;
    }
    from = next;
    await nextTurn();
  }
  return reopened;
}

export interface ChangeApplierOptions {
  readonly store: RecordStore;
  readonly live: LiveBuffers;
  readonly directory: AccountDirectory;
  /** The catalogue of the moment. */
  readonly catalog: () => Catalog;
  /** Slots of the ledger and of the key table. */
  readonly accountsMax: number;
  readonly keysMax: number;
  readonly log: Log;
}

/**
 * Brings what the store has of an account or a key to the buffers and the directory of a process that shares
 * its registry. It makes no difference who changed the record, or how often. Money and counts stay: the
 * process holds leases of them.
 */
export class ChangeApplier {
  readonly #options: ChangeApplierOptions;
  readonly #logged = new Set<string>();

  constructor(options: ChangeApplierOptions) {
    this.#options = options;
  }

  /** The slot may have a new group, a changed one, or none any more. */
  applyGroup(_index: GroupIndex): void {
    // Until the ledger has groups.
  }

  /** Does nothing if no account has the slot. 15 µs. */
  applyAccount(index: AccountIndex): void {
    const { store, live, directory, catalog, accountsMax } = this.#options;
    const id = store.findAccountId(index);
    const record = id === undefined ? undefined : store.findAccount(id);
    if (record === undefined || !this.#fits(index, accountsMax, 'accounts')) return;
    applyAccount(record, live, catalog());
    directory.set(record);
  }

  /** The slot may have a new key, a changed one, or none any more. 15 µs. */
  applyKey(index: KeyIndex): void {
    const { store, live, keysMax } = this.#options;
    const { keyTable } = live;
    const record = store.keys.findAt(index);
    if (record === undefined) {
      if (index < keysMax && keyTable.has(index)) keyTable.remove(index);
      return;
    }
    if (!this.#fits(index, keysMax, 'keys')) return;
    // A slot rests for a day before it is used again, so only a process that was stopped for a day finds a
    // former key here.
    const isOther = keyTable.has(index) && keyTable.find(record.digest) !== index;
    if (isOther) keyTable.remove(index);
    applyKey(record, live);
  }

  /** Another host may have larger limits than this one. */
  #fits(index: number, most: number, what: 'accounts' | 'keys'): boolean {
    if (index < most) return true;
    if (this.#logged.has(what)) return false;
    this.#logged.add(what);
    this.#options.log.error(
      `the registry has more ${what} than limits.${what} of this gateway allows: those beyond are refused here; ` +
        `raise it to at least ${index + 1} and restart`,
      { [what]: most },
    );
    return false;
  }
}
