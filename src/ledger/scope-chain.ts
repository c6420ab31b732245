/**
 * The scope chain of a call: the scopes that the call counts toward, in one order: key, account, the
 * account's rule for the model, and the groups from the account's own upward. Each `Calls` (calls.ts) has a
 * ScopeChain, sets it to each call that it admits, and asks it from which records an ended call took. Any
 * thread.
 *
 * Must hold: the order of scopes is that of `Taken.masks`, by which an ended call is given back. `links` and
 * `taken` are reused, so nobody keeps them, or relies on a field that was not set for the present call.
 * `set` allocates nothing, because it runs for each call (no test sees that). Tests:
 * test/unit/ledger/quotas.test.ts (trees of scopes at random), test/unit/ledger/reservations.test.ts,
 * test/unit/ledger/call-left.test.ts.
 */
import { invariant } from '../core/errors.js';
import type { QuotaLimits } from '../core/quotas.js';
import type { AccountIndex, GroupIndex, KeyIndex, ModelScopeIndex } from '../core/units.js';
import {
  accountRecordAt,
  CALLS_IN_FLIGHT,
  EXTENDED_QUOTAS,
  groupAt,
  indexIn,
  type LedgerViews,
} from './layout.js';
import type { LimitedScopes } from './limited-scopes.js';
import type { ModelScopes } from './model-scopes.js';
import {
  ACCOUNT_SCOPE,
  createTaken,
  DAY_BIT,
  GROUP_SCOPE,
  KEY_SCOPE,
  MODEL_SCOPE,
  SCOPES_MAX,
  type ScopePosition,
  type Taken,
} from './reservations.js';
import type { PlanQuotas } from './quota-records.js';
import type { ScopeQuotas } from './scope-quotas.js';

export const FLIGHT_BIT = 1 << CALLS_IN_FLIGHT;

interface ModelRule {
  readonly modelIndex: number;
  readonly limits: QuotaLimits;
}

/** Whose quotas a call counts toward. The account's group is in shared memory. */
export interface CallScopes {
  readonly account: AccountIndex;
  readonly plan: {
    readonly callsPerDay: number;
    /** The lower of the plan's limit and the gateway's. */
    readonly callsInFlightMax: number;
    readonly quotas: QuotaLimits;
  };
  /** The key, if it has limits of its own. */
  readonly key: KeyIndex | undefined;
  readonly model?: ModelRule | undefined;
}

/** Where the scopes of calls are found, of one ledger. */
export interface ScopeTables {
  readonly keys: LimitedScopes;
  readonly groups: LimitedScopes<GroupIndex>;
  readonly models: LimitedScopes<ModelScopeIndex>;
  readonly modelScopes: ModelScopes;
  readonly quotas: ScopeQuotas;
}

/** One scope of the call that is being admitted or, after `recall`, of the call that ends. */
export interface Link {
  /** The slot of the key, the account, the rule or the group. */
  index: number;
  /**
   * The index of the scope's quota record. Valid, as `limits` and `firstLimit` are, only if `mask` has a bit
   * besides DAY_BIT: otherwise it is -1, or an earlier call's.
   */
  record: number;
  /** Which quotas the scope has; bits as in `Taken.masks`. Limits are valid for these quotas alone. */
  mask: number;
  /** Valid if `mask` has DAY_BIT, but not for the account, whose plan has that limit. */
  callsPerDay: number;
  /** The limit of quota n is `limits[firstLimit + n]`: a plan has its own array, all records share one. */
  limits: Float64Array;
  firstLimit: number;
}

const NO_LIMITS = new Float64Array(EXTENDED_QUOTAS.length);

export class ScopeChain {
  readonly links: readonly Link[] = Array.from({ length: SCOPES_MAX }, () => ({
    index: 0,
    record: -1,
    mask: 0,
    callsPerDay: 0,
    limits: NO_LIMITS,
    firstLimit: 0,
  }));
  /** What the call has taken. `set` clears it; `Calls` fills it, and reads ended calls into it. */
  readonly taken = createTaken();
  readonly #accountExtras: Int32Array;
  readonly #tables: ScopeTables;
  /** The plan of the last call, kept because the next call mostly has the same. */
  #lastQuotas: QuotaLimits | undefined;
  #lastPlan: PlanQuotas = { mask: 0, limits: NO_LIMITS };

  constructor(views: LedgerViews, tables: ScopeTables) {
    this.#accountExtras = views.accountExtras;
    this.#tables = tables;
  }

  /**
   * Sets `links` to the scopes of a call, and `taken` to nothing taken. If the account is the only scope, and
   * its plan needs no quota record, sets no link, and `taken.scopeCount` to 0: `Calls` then takes the
   * account's call of the day by the plan. Returns false, with `scopeCount` 0 and no valid link, if one of
   * the scopes cannot be counted, because all quota records (or slots of ModelScopes) are in use.
   */
  set({ account, plan, key, model }: CallScopes): boolean {
    const { taken } = this;
    taken.account = account;
    taken.scopeCount = 0;
    if (plan.quotas !== this.#lastQuotas) {
      this.#lastQuotas = plan.quotas;
      // `Calls` counts an account's calls in flight without a quota record.
      const { mask, limits } = this.#tables.quotas.planOf(plan.quotas);
      this.#lastPlan = { mask: mask & ~FLIGHT_BIT, limits };
    }
    const planQuotas = this.#lastPlan;
    const group = indexIn(this.#accountExtras[groupAt(account)]!);
    if (planQuotas.mask === 0 && group === undefined && key === undefined && model === undefined) return true;
    const { keys, groups, quotas } = this.#tables;
    taken.key = key;
    taken.model = undefined;
    taken.group = group as GroupIndex | undefined;
    for (let scope = 0; scope < SCOPES_MAX; scope++) taken.masks[scope] = 0;
    // Links of groups are set below up to `taken.scopeCount`; nobody reads later ones.
    for (let scope = 0; scope < GROUP_SCOPE; scope++) this.links[scope]!.mask = 0;
    if (key !== undefined && !this.#linkLimited(KEY_SCOPE, key, keys)) return false;
    if (planQuotas.mask !== 0) {
      const record = quotas.recordAt(this.#accountExtras, accountRecordAt(account));
      if (record === undefined) return false;
      this.#linkPlan(ACCOUNT_SCOPE, record, planQuotas.mask, planQuotas.limits);
    }
    const accountLink = this.links[ACCOUNT_SCOPE]!;
    accountLink.index = account;
    // Each plan limits calls a day (CallScopes.plan), which needs no quota record.
    accountLink.mask |= DAY_BIT;
    if (model !== undefined && !this.#linkModel(account, model)) return false;
    // GROUP_DEPTH_MAX (core/limits.ts) bounds the groups, so the condition on SCOPES_MAX never cuts any off.
    let scope = GROUP_SCOPE;
    for (let groupAbove = taken.group; groupAbove !== undefined && scope < SCOPES_MAX; scope++) {
      if (!this.#linkLimited(scope, groupAbove, groups)) return false;
      groupAbove = groups.parentOf(groupAbove);
    }
    taken.scopeCount = scope;
    return true;
  }

  /** The table of the scope at that position. Throws for the account, which has none. */
  limitedAt(scope: ScopePosition): LimitedScopes<number> {
    invariant(scope !== ACCOUNT_SCOPE, 'an account is in no table of limited scopes');
    const { keys, groups, models } = this.#tables;
    return scope === KEY_SCOPE ? keys : scope === MODEL_SCOPE ? models : groups;
  }

  /**
   * Sets `index` and `record`, and no other field, of the links that an ended call took from. Finds groups
   * by their parents: registry/groups.ts never changes a parent, and the slot of a deleted group rests for a
   * day. Each `!` is safe, because a mask is not 0 only if `set` found that scope.
   */
  recall({ scopeCount, masks, account, key, model, group }: Taken): void {
    // `masks` are not valid then.
    if (scopeCount === 0) return;
    if (masks[KEY_SCOPE] !== 0) this.#recall(KEY_SCOPE, key!);
    if (masks[ACCOUNT_SCOPE] !== 0) {
      const link = this.links[ACCOUNT_SCOPE]!;
      link.index = account;
      link.record = indexIn(this.#accountExtras[accountRecordAt(account)]!) ?? -1;
    }
    if (masks[MODEL_SCOPE] !== 0) this.#recall(MODEL_SCOPE, model!);
    for (let scope = GROUP_SCOPE, groupAbove = group; scope < scopeCount; scope++) {
      if (masks[scope] !== 0) this.#recall(scope, groupAbove!);
      groupAbove = this.#tables.groups.parentOf(groupAbove!);
    }
  }

  #recall(scope: ScopePosition, index: number): void {
    const link = this.links[scope]!;
    link.index = index;
    link.record = this.limitedAt(scope).recordOf(index) ?? -1;
  }

  #linkModel(account: AccountIndex, { modelIndex, limits }: ModelRule): boolean {
    const { models, modelScopes, quotas } = this.#tables;
    const { mask, limits: modelLimits } = quotas.planOf(limits);
    const slot = modelScopes.slotOf(account, modelIndex);
    const record = slot === undefined ? undefined : mask === 0 ? -1 : models.recordOrNew(slot);
    if (slot === undefined || record === undefined) return false;
    const dayBit = limits.callsPerDay === undefined ? 0 : DAY_BIT;
    this.#linkPlan(MODEL_SCOPE, record, mask | dayBit, modelLimits);
    const link = this.links[MODEL_SCOPE]!;
    link.index = slot;
    link.callsPerDay = limits.callsPerDay ?? 0;
    this.taken.model = slot;
    return true;
  }

  #linkPlan(scope: ScopePosition, record: number, mask: number, limits: Float64Array): void {
    const link = this.links[scope]!;
    link.record = record;
    link.mask = mask;
    link.limits = limits;
    link.firstLimit = 0;
  }

  #linkLimited<Index extends number>(
    scope: ScopePosition,
    index: Index,
    limited: LimitedScopes<Index>,
  ): boolean {
    const { quotas } = this.#tables;
    const link = this.links[scope]!;
    const callsPerDay = limited.callsPerDayOf(index);
    const record = limited.recordOf(index);
    link.index = index;
    link.record = record ?? -1;
    link.callsPerDay = callsPerDay ?? 0;
    link.mask =
      (record === undefined ? 0 : quotas.maskOf(record)) | (callsPerDay === undefined ? 0 : DAY_BIT);
    link.limits = quotas.limits;
    link.firstLimit = record === undefined ? 0 : quotas.firstLimitOf(record);
    // Without a record the scope has no extended quota, or (false) all records were in use when it got one.
    return record !== undefined || !limited.isUncounted(index);
  }
}
