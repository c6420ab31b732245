/**
 * Copies records of accounts, groups and keys from the store to the shared buffers, where every thread of the
 * process sees them. Main thread. store/recovery.ts calls the functions at start. Later callers are
 * OwnBuffers (registry-context.ts) in a gateway that is alone on its store, and change-applier.ts in a
 * gateway that shares its store. To _open_ a slot is to begin its counts, to _apply_ a record is to copy what
 * an operator may change, to _restore_ is to set counts as of the last flush.
 *
 * Must hold: an account is active only if its record is, its plan is in the catalogue and its group in the
 * buffers. A group is open only under its parent. The key table has no key whose account has no slot in the
 * ledger: each listener that found such a key would end by a RangeError. Tests:
 * test/unit/registry/live-buffers.account-state.test.ts, test/unit/registry/change-applier.test.ts,
 * test/unit/store/recovery.test.ts.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { invariant } from '../core/errors.js';
import { GROUP_DEPTH_MAX } from '../core/limits.js';
import { hasQuotas, NO_QUOTAS } from '../core/quotas.js';
import {
  asPicoUnits,
  asWallMs,
  type AccountIndex,
  type GroupIndex,
  type KeyIndex,
  type WallMs,
} from '../core/units.js';
import type { ScopeCounts } from '../ledger/limited-scopes.js';
import type { AccountState, Ledger } from '../ledger/ledger.js';
import type { AccountRecord, GroupRecord, SpendingRecord } from './account-record.js';
import { type Catalog, isListed, NO_PLAN_INDEX } from './catalog.js';
import type { GroupNames } from './group-names.js';
import type { KeyRecord, KeyUseRecord } from './key-record.js';
import type { KeyTable } from './key-table.js';
import { minuteDayCountsOf, type QuotaUseRecord, type UsedScope } from './quota-use.js';
import type { GroupStore, RecordStore } from './record-store.js';

export interface LiveBuffers {
  readonly ledger: Ledger;
  readonly keyTable: KeyTable;
  readonly groupNames: GroupNames;
}

type AccountBuffers = Pick<LiveBuffers, 'ledger' | 'groupNames'>;

/** Undefined if the catalogue does not have the plan, or a reload has removed the plan. */
export function findPlanIndex(catalog: Catalog, planId: string): number | undefined {
  const index = catalog.plans.findIndex((plan) => plan.id === planId && isListed(plan));
  return index < 0 ? undefined : index;
}

/**
 * Whether the account's calls may be admitted. If its plan is not in the catalogue, or its group not in the
 * buffers, the limits of that plan or group could not be applied.
 */
function isActive(
  { active, groupId }: AccountRecord,
  planIndex: number | undefined,
  group: GroupIndex | undefined,
): boolean {
  return active && planIndex !== undefined && (groupId === undefined || group !== undefined);
}

/** The state for the ledger. `spending` is undefined if there was no flush; `group` is of `groupIndexOf`. */
export function accountStateOf(
  record: AccountRecord,
  spending: SpendingRecord | undefined,
  catalog: Catalog,
  group: GroupIndex | undefined,
): AccountState {
  const planIndex = findPlanIndex(catalog, record.planId);
  return {
    credited: record.credited,
    spent: spending?.spent ?? asPicoUnits(0n),
    uncovered: spending?.uncovered ?? asPicoUnits(0n),
    dayNumber: spending?.dayNumber ?? 0,
    dayCalls: spending?.dayCalls ?? 0,
    planIndex: planIndex ?? NO_PLAN_INDEX,
    active: isActive(record, planIndex, group),
  };
}

/** Applies the plan, the group and the status of an account; money and counts stay as they are. */
export function applyAccount(
  record: AccountRecord,
  live: AccountBuffers,
  catalog: Catalog,
  store: GroupFinder,
): void {
  const { ledger } = live;
  const planIndex = findPlanIndex(catalog, record.planId);
  const group = groupIndexOf(record, live, store);
  const active = isActive(record, planIndex, group);
  // Disabled first, enabled last, so that no thread looks up a plan that is not there.
  if (!active) ledger.setActive(record.index, false);
  ledger.setGroup(record.index, group);
  ledger.setPlan(record.index, planIndex ?? NO_PLAN_INDEX);
  ledger.setActive(record.index, active);
}

/** The part of a RecordStore that finds groups. */
interface GroupFinder {
  readonly groups: Pick<GroupStore, 'find'>;
}

/** Undefined if the account is in no group, or in a group that is not in the buffers. */
export function groupIndexOf(
  { groupId }: AccountRecord,
  { groupNames }: AccountBuffers,
  store: GroupFinder,
): GroupIndex | undefined {
  const group = groupId === undefined ? undefined : store.groups.find(groupId);
  return group !== undefined && groupNames.has(group.index, group.name) ? group.index : undefined;
}

/** From the top down to `record`. Undefined if an ancestor is missing, or damaged rows form a circle. */
export function groupPathTo(record: GroupRecord, store: GroupFinder): GroupRecord[] | undefined {
  const path = [record];
  for (let { parentId } = record; parentId !== undefined;) {
    const parent = store.groups.find(parentId);
    if (parent === undefined || path.length === GROUP_DEPTH_MAX) return undefined;
    path.unshift(parent);
    ({ parentId } = parent);
  }
  return path;
}

/** Says of a group why `groupPathTo` returned undefined. */
export function brokenPathText({ id, name }: GroupRecord): string {
  return `the groups above ${id} (${name}) are missing, or they form a circle`;
}

/**
 * Opens the group after its ancestors, or applies its limits if it is open. A group is open if its slot has
 * its name: a name never changes, and a slot rests for a day before another group gets the slot. Throws, and
 * opens nothing, if an ancestor is missing, because nobody would count by the ancestor's limits.
 */
export function applyGroup(record: GroupRecord, live: LiveBuffers, store: GroupFinder): void {
  const { ledger, groupNames } = live;
  if (groupNames.has(record.index, record.name)) {
    ledger.groups.setLimits(record.index, record.limits);
    return;
  }
  const path = groupPathTo(record, store);
  if (path === undefined) throw new Error(brokenPathText(record));
  let parent: GroupIndex | undefined;
  for (const { index, name, limits } of path) {
    if (!groupNames.has(index, name)) {
      // The name is set first: group-names.ts says why.
      groupNames.set(index, name);
      ledger.groups.open(index, limits, { parent });
    }
    parent = index;
  }
}

/** Call it when no account is in the group. Calls in flight still give back to the group's slot. */
export function removeGroup(index: GroupIndex, { ledger, groupNames }: LiveBuffers): void {
  ledger.groups.setLimits(index, NO_QUOTAS);
  groupNames.set(index, '');
}

/**
 * Restores a scope's use. Call before any thread counts for the scope. Does nothing if the scope is not in
 * the buffers, or is a rule for a model: see `restoreModelUse`.
 */
export function restoreQuotaUse(
  scope: UsedScope,
  use: QuotaUseRecord,
  { ledger, keyTable, groupNames }: LiveBuffers,
  nowMs: WallMs,
): void {
  const ageMs = nowMs - use.takenMs;
  if (scope.kind === 'account') {
    if (ledger.hasSlot(scope.index)) ledger.restoreSettled(scope, use, ageMs);
  } else if (scope.kind === 'key') {
    if (keyTable.has(scope.index) && keyTable.isLimited(scope.index))
      ledger.restoreSettled(scope, use, ageMs);
  } else if (scope.kind === 'group') {
    const { index } = scope;
    if (groupNames.nameOf(index) === '') return;
    const { groups } = ledger;
    const parent = groups.parentOf(index);
    groups.open(index, groups.limitsOf(index), { used: minuteDayCountsOf(use), ageMs, parent });
    ledger.restoreSettled(scope, use, ageMs);
  }
}

/** Restores an account's use of a plan's rule for a model. Call before any thread counts for the rule. */
export function restoreModelUse(
  account: AccountIndex,
  modelIndex: number,
  use: QuotaUseRecord,
  { ledger }: Pick<LiveBuffers, 'ledger'>,
  nowMs: WallMs,
): void {
  // As `restoreQuotaUse`: a row of the store may name any slot.
  const index = ledger.hasSlot(account) ? ledger.modelScopes.slotOf(account, modelIndex) : undefined;
  if (index === undefined) return;
  const ageMs = nowMs - use.takenMs;
  ledger.models.open(index, {}, { used: minuteDayCountsOf(use), ageMs });
  // The limits of the rule are set by its next call (`{}` above), so its use is restored for all quotas.
  // Undefined if no quota record is free.
  if (ledger.models.recordOrNew(index) === undefined) return;
  ledger.restoreSettled({ kind: 'model', index }, use, ageMs);
}

/**
 * Adds the key to the table, or applies its status, expiry and limits if it is there. A former key that still
 * has the slot is removed: memory may be older than the disk (commitAndApply), and a process may have been
 * stopped while the slot rested. An expiry can change but is never removed, which no operation asks for.
 */
export function applyKey(record: KeyRecord, live: LiveBuffers): void {
  const { index, digest, accountIndex, active, expiresSeconds, isPrivate = false } = record;
  const { ledger, keyTable } = live;
  const hasLimits = hasQuotas(record.limits);
  if (keyTable.has(index) && keyTable.find(digest) !== index) keyTable.remove(index);
  if (!keyTable.has(index)) {
    // A listener reads the ledger's record of the account as soon as it finds the key.
    invariant(ledger.hasSlot(accountIndex), `the account of key ${record.id} is within the ledger`);
    // The ledger first: a thread that finds a limited key counts its calls there.
    if (hasLimits) ledger.keys.open(index, record.limits);
    keyTable.insert(index, digest, accountIndex, active, { expiresSeconds, isLimited: hasLimits, isPrivate });
    return;
  }
  // A key whose limits were removed is still counted, so that later limits do not start at 0.
  if (keyTable.isLimited(index)) ledger.keys.setLimits(index, record.limits);
  else if (hasLimits) {
    ledger.keys.open(index, record.limits);
    keyTable.setLimited(index);
  }
  keyTable.setActive(index, active);
  keyTable.setPrivate(index, isPrivate);
  if (expiresSeconds !== undefined) keyTable.setExpiry(index, expiresSeconds);
}

/** The counts of a key without limits of its own: its calls are not counted. */
const NO_COUNTS: ScopeCounts = { minuteUsed: 0, dayNumber: 0, dayCalls: 0 };

/** Undefined if the key is not in the table, or has no limits and was never used. */
export function keyUseOf(key: KeyIndex, live: LiveBuffers, nowMs: WallMs): KeyUseRecord | undefined {
  const { ledger, keyTable } = live;
  if (!keyTable.has(key)) return undefined;
  const lastUsedSeconds = keyTable.lastUsedSecondsOf(key);
  const hasLimits = keyTable.isLimited(key);
  if (lastUsedSeconds === undefined && !hasLimits) return undefined;
  const { minuteUsed, dayNumber, dayCalls } = hasLimits ? ledger.keys.countsOf(key) : NO_COUNTS;
  return { lastUsedSeconds, minuteUsed, dayNumber, dayCalls, takenMs: asWallMs(Math.floor(nowMs)) };
}

/** Restores a key's use, if the key is in the table. Call before any thread counts for the key. */
export function restoreKeyUse(
  key: KeyIndex,
  use: KeyUseRecord,
  { ledger, keyTable }: LiveBuffers,
  nowMs: WallMs,
): void {
  if (!keyTable.has(key)) return;
  if (use.lastUsedSeconds !== undefined) keyTable.recordUse(key, use.lastUsedSeconds);
  if (keyTable.isLimited(key))
    ledger.keys.open(key, ledger.keys.limitsOf(key), { used: use, ageMs: nowMs - use.takenMs });
}

/** How many accounts are read in one event-loop turn, in 10 ms. */
const PAGE_ITEMS = 1_000;

/**
 * Enables accounts that were disabled because their plan was missing, if a reload brought the plan back.
 * Resolves with their number. Passes over accounts that have no slot in this ledger (change-applier.ts).
 * Reads every account, 10 µs each, so gateway/reload.ts calls it only if there are accounts without a plan.
 */
export async function reopenPlanless(
  store: RecordStore,
  live: AccountBuffers,
  catalog: () => Catalog,
): Promise<number> {
  let reopened = 0;
  let from: number | undefined = 0;
  while (from !== undefined) {
    const { items, next } = store.listAccounts(from, PAGE_ITEMS);
    for (const record of items) {
      if (!live.ledger.hasSlot(record.index)) continue;
      if (live.ledger.planIndexOf(record.index) !== NO_PLAN_INDEX) continue;
      // `catalog` is called again, because another reload may come between two pages.
      if (findPlanIndex(catalog(), record.planId) === undefined) continue;
      applyAccount(record, live, catalog(), store);
      reopened++;
    }
    from = next;
    await nextTurn();
  }
  return reopened;
}
