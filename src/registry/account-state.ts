/**
 * From what the store keeps of an account to the words of the ledger. Pure; main thread.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { asPicoUnits } from '../core/units.js';
import type { AccountState, Ledger } from '../ledger/ledger.js';
import type { AccountRecord, SpendingRecord } from './account-record.js';
import { type Catalog, isListed, NO_PLAN_INDEX } from './catalog.js';
import type { RecordStore } from './record-store.js';

/** Undefined where the catalogue does not have the plan. */
export function findPlanIndex(catalog: Catalog, planId: string): number | undefined {
  const index = catalog.plans.findIndex((plan) => plan.id === planId && isListed(plan));
  return index < 0 ? undefined : index;
}

/**
 * `spending` is undefined for an account that was never flushed. An account whose plan is not in the catalogue has no
 * limits that could be held, so it is disabled until it has a plan again.
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

/*
 * Accounts that were disabled because their plan was not in the settings, and get it back with a reload. Main thread.
 */

/** Read in one turn of the event loop: 10 ms. */
const PAGE_ITEMS = 1_000;

/** Resolves with how many came back. Reads every account, 10 µs each, in pages: only where there are such accounts. */
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
