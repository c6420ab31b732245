/**
 * The scopes that a call counts toward besides its account's day, in one order: key, account, the account's
 * rule for a model, and the groups from the account's own upward. `Calls` has one, sets it to each call that
 * it admits, and asks it which records an ended call took of. Any thread.
 */
import type { QuotaLimits } from '../core/quotas.js';
import type { AccountIndex, GroupIndex, KeyIndex, ModelScopeIndex } from '../core/units.js';
import { ACCOUNT_RECORD, BESIDE_WORDS32, EXTENDED_QUOTAS, GROUP, type LedgerViews } from './layout.js';
import type { LimitedScopes } from './limited-scopes.js';
import type { ModelScopes } from './model-scopes.js';
import {
  ACCOUNT_SCOPE,
  DAY_BIT,
  GROUP_SCOPE,
  KEY_SCOPE,
  MODEL_SCOPE,
  SCOPES_MAX,
  type Taken,
} from './reservations.js';
import type { ScopeQuotas } from './scope-quotas.js';

export const FLIGHT_BIT = 1 << EXTENDED_QUOTAS.indexOf('calls_in_flight');

/** The rule of a plan for one model. */
export interface ModelRule {
  readonly modelIndex: number;
  readonly limits: QuotaLimits;
}

/** Whose quotas a call counts toward. */
export interface CallScopes {
  readonly account: AccountIndex;
  /** The limits of the account. */
  readonly plan: {
    readonly callsPerDay: number;
    /** The lower of the plan's and the gateway's. */
    readonly callsInFlightMax: number;
    readonly quotas: QuotaLimits;
  };
  /** The key, if it has limits of its own. */
  readonly key: KeyIndex | undefined;
  readonly model?: ModelRule | undefined;
}

/** The tables of scopes with limits of their own. */
export interface ScopeTables {
  readonly keys: LimitedScopes;
  readonly groups: LimitedScopes<GroupIndex>;
  readonly models: LimitedScopes<ModelScopeIndex>;
  readonly modelScopes: ModelScopes;
  readonly quotas: ScopeQuotas;
}

/** One scope of the call that is being admitted. */
export interface Link {
  index: number;
  /** Its quota record; -1 if none. */
  record: number;
  /** Which quotas it has: bits as in Taken.masks. */
  mask: number;
  callsPerDay: number;
  /** The limit of quota n is `limits[first + n]`. */
  limits: Float64Array;
  first: number;
}

const NO_LIMITS = new Float64Array(EXTENDED_QUOTAS.length);

export class ScopeChain {
  readonly links: readonly Link[] = Array.from({ length: SCOPES_MAX }, () => ({
    index: 0,
    record: -1,
    mask: 0,
    callsPerDay: 0,
    limits: NO_LIMITS,
    first: 0,
  }));
  readonly #besides: Int32Array;
  readonly #tables: ScopeTables;
  #lastQuotas: QuotaLimits | undefined;
  #lastMask = 0;

  constructor(views: LedgerViews, tables: ScopeTables) {
    this.#besides = views.besides;
    this.#tables = tables;
  }

  /**
   * Sets `links` to the scopes of a call, and `taken` to have taken nothing of them. `taken.scopes` is 0 if
   * none has quotas. False if there is no room to count one of them.
   */
  set({ account, plan, key, model }: CallScopes, taken: Taken): boolean {
    taken.account = account;
    taken.scopes = 0;
    if (plan.quotas !== this.#lastQuotas) {
      this.#lastQuotas = plan.quotas;
      this.#lastMask = this.#tables.quotas.planOf(plan.quotas).mask & ~FLIGHT_BIT;
    }
    const group = Atomics.load(this.#besides, account * BESIDE_WORDS32 + GROUP);
    if (this.#lastMask === 0 && group === 0 && key === undefined && model === undefined) return true;
    const { keys, groups, quotas } = this.#tables;
    taken.key = key;
    taken.model = undefined;
    taken.group = group === 0 ? undefined : ((group - 1) as GroupIndex);
    taken.masks.fill(0);
    for (let scope = 0; scope < GROUP_SCOPE; scope++) this.links[scope]!.mask = 0;
    if (key !== undefined) this.#linkLimited(KEY_SCOPE, key, keys);
    if (this.#lastMask !== 0) {
      const record = quotas.recordAt(this.#besides, account * BESIDE_WORDS32 + ACCOUNT_RECORD);
      if (record === undefined) return false;
      this.#linkPlan(ACCOUNT_SCOPE, record, plan.quotas, this.#lastMask);
    }
    this.links[ACCOUNT_SCOPE]!.index = account;
    if (model !== undefined && !this.#linkModel(account, model, taken)) return false;
    let scopes: number = GROUP_SCOPE;
    for (let at = taken.group; at !== undefined && scopes < SCOPES_MAX; at = groups.parentOf(at)) {
      this.#linkLimited(scopes, at, groups);
      scopes += 1;
    }
    taken.scopes = scopes;
    return true;
  }

  /** The table of a scope that is not an account. */
  limitedAt(scope: number): LimitedScopes<number> {
    const { keys, groups, models } = this.#tables;
    const limited: LimitedScopes<number> =
      scope === KEY_SCOPE ? keys : scope === MODEL_SCOPE ? models : groups;
    return limited;
  }

  /** Visits each scope of which an ended call took; `index` is the account's, or that in `limitedAt`. */
  each(taken: Taken, visit: (scope: number, index: number, record: number) => void): void {
    const { groups } = this.#tables;
    const { masks, account, key, model } = taken;
    if (masks[KEY_SCOPE] !== 0) this.#visit(KEY_SCOPE, key!, visit);
    if (masks[ACCOUNT_SCOPE] !== 0) {
      const record = Atomics.load(this.#besides, account * BESIDE_WORDS32 + ACCOUNT_RECORD) - 1;
      visit(ACCOUNT_SCOPE, account, record);
    }
    if (masks[MODEL_SCOPE] !== 0) this.#visit(MODEL_SCOPE, model!, visit);
    for (let scope = GROUP_SCOPE, at = taken.group; scope < taken.scopes; scope++) {
      if (masks[scope] !== 0) this.#visit(scope, at!, visit);
      at = groups.parentOf(at!);
    }
  }

  #visit(scope: number, index: number, visit: (scope: number, index: number, record: number) => void): void {
    visit(scope, index, this.limitedAt(scope).recordOf(index) ?? -1);
  }

  #linkModel(account: AccountIndex, { modelIndex, limits }: ModelRule, taken: Taken): boolean {
    const { models, modelScopes, quotas } = this.#tables;
    const { mask } = quotas.planOf(limits);
    const slot = modelScopes.slotOf(account, modelIndex) as ModelScopeIndex | undefined;
    const record = slot === undefined ? undefined : mask === 0 ? -1 : models.recordOrNew(slot);
    if (slot === undefined || record === undefined) return false;
    const dayBit = limits.callsPerDay === undefined ? 0 : DAY_BIT;
    this.#linkPlan(MODEL_SCOPE, record, limits, mask | dayBit);
    const link = this.links[MODEL_SCOPE]!;
    link.index = slot;
    link.callsPerDay = limits.callsPerDay ?? 0;
    taken.model = slot;
    return true;
  }

  #linkPlan(scope: number, record: number, quotas: QuotaLimits, mask: number): void {
    const link = this.links[scope]!;
    link.record = record;
    link.mask = mask;
    link.limits = this.#tables.quotas.planOf(quotas).limits;
    link.first = 0;
  }

  #linkLimited<Index extends number>(scope: number, index: Index, limited: LimitedScopes<Index>): void {
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
    link.first = record === undefined ? 0 : quotas.firstLimitOf(record);
  }
}
