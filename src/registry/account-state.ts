/**
 * From what the store keeps of an account to the words of the ledger. Pure; main thread.
 */
import { asPicoUnits } from '../core/units.js';
import type { AccountState } from '../ledger/ledger.js';
import type { AccountRecord, SpendingRecord } from './account-record.js';
import { isListed, NO_PLAN_INDEX, type Catalog } from './catalog.js';

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
