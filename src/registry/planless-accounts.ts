/**
 * Accounts that were disabled because their plan was not in the settings, and get it back with a reload. Main thread.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Ledger } from '../ledger/ledger.js';
import { findPlanIndex } from './account-state.js';
import { NO_PLAN_INDEX, type Catalog } from './catalog.js';
import type { RecordStore } from './record-store.js';

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
