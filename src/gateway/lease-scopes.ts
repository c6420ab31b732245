/**
 * Finds where the leases of a scope (account, key, group, rule for a model, upstream) lie in shared memory
 * and which limits the scope has. shared-accounting.ts makes it for the lease manager, on the main thread.
 *
 * Must hold: `limits` of an address reads the limits each time it is called, because a reload or an operator
 * may change them later (test/e2e/shared-limits.test.ts, test/e2e/shared-quotas.test.ts,
 * test/e2e/upstream-quotas.test.ts).
 */
import type { LeaseScope } from '../channel/lease-channel.js';
import type { QuotaLimits } from '../core/quotas.js';
import {
  type AccountIndex,
  asAccountIndex,
  asGroupIndex,
  asKeyIndex,
  asModelScopeIndex,
  asUpstreamScopeIndex,
  type GroupIndex,
  type KeyIndex,
  type ModelScopeIndex,
  type UpstreamScopeIndex,
} from '../core/units.js';
import type { Scope } from '../ledger/layout.js';
import type { CountedLeases, Leases, SpentAccounting } from '../ledger/leases.js';
import type { UpstreamLeases } from '../ledger/upstream-counters.js';
import type { Ledger } from '../ledger/ledger.js';
import { modelScope } from '../sharing/coordinator.js';
import type { ScopeAddress } from '../sharing/leased-scope.js';
import type { LiveSettings } from './reload.js';

interface LeaseScopesOptions {
  readonly ledger: Ledger;
  readonly leases: Leases;
  readonly live: LiveSettings;
  readonly accounting: SpentAccounting;
  readonly upstreams: UpstreamLeases;
  /** Each function looks up an id, and returns undefined for a scope that is not there. */
  readonly idOf: {
    readonly account: (account: AccountIndex) => string | undefined;
    readonly key: (key: KeyIndex) => string | undefined;
    readonly group: (group: GroupIndex) => string | undefined;
  };
}

export class LeaseScopes {
  readonly #options: LeaseScopesOptions;

  constructor(options: LeaseScopesOptions) {
    this.#options = options;
  }

  // Both functions are properties, so that shared-accounting.ts can hand them to the lease manager.
  /** Returns undefined if the scope has been deleted. */
  readonly addressOf = ({ kind, index }: LeaseScope): ScopeAddress | undefined => {
    const { leases, ledger, idOf } = this.#options;
    switch (kind) {
      case 'account': {
        const account = asAccountIndex(index);
        const limits = (): Partial<QuotaLimits> => this.#accountLimitsOf(account);
        return this.#makeAddress({ kind, index: account }, idOf.account(account), leases.accounts, limits);
      }
      case 'key': {
        const key = asKeyIndex(index);
        return this.#makeAddress({ kind, index: key }, idOf.key(key), leases.keys, () =>
          ledger.keys.limitsOf(key),
        );
      }
      case 'group': {
        const group = asGroupIndex(index);
        const limits = (): QuotaLimits => ledger.groups.limitsOf(group);
        return this.#makeAddress({ kind, index: group }, idOf.group(group), leases.groups, limits);
      }
      case 'model':
        return this.#modelAddress(asModelScopeIndex(index));
      case 'upstream':
        return this.#upstreamAddress(asUpstreamScopeIndex(index));
    }
    kind satisfies never;
    return undefined;
  };

  /** Returns the groups that the account is in: its own group, the group above that, and so on. */
  readonly groupsOf = (account: number): readonly GroupIndex[] => {
    const { ledger } = this.#options;
    const groups: GroupIndex[] = [];
    let group = ledger.groupOf(asAccountIndex(account));
    for (; group !== undefined; group = ledger.groups.parentOf(group)) groups.push(group);
    return groups;
  };

  /** `scopeId`: undefined for a deleted scope. `minute`: the leases of requests per minute. */
  #makeAddress(
    scope: Scope,
    scopeId: string | undefined,
    minute: CountedLeases<never>,
    limits: () => Partial<QuotaLimits>,
  ): ScopeAddress | undefined {
    if (scopeId === undefined) return undefined;
    const { leases, accounting } = this.#options;
    const { kind, index } = scope;
    const money = scope.kind === 'account' ? leases.balanceOf(scope.index, accounting) : undefined;
    return { kind, index, scopeId, minute, wordsOf: (name) => leases.stockOf(scope, name), money, limits };
  }

  /** Returns the address of an account's rule for a model; undefined if account or model are gone. */
  #modelAddress(index: ModelScopeIndex): ScopeAddress | undefined {
    const { ledger, leases, live, idOf } = this.#options;
    const pair = ledger.modelScopes.pairOf(index);
    if (pair === undefined) return undefined;
    const { account, modelIndex } = pair;
    const model = live.catalog.models[modelIndex];
    const accountId = idOf.account(account);
    if (model === undefined || accountId === undefined) return undefined;
    const scopeId = modelScope(accountId, model.id);
    return this.#makeAddress({ kind: 'model', index }, scopeId, leases.models, () => {
      const plan = live.catalog.plans[ledger.planIndexOf(account)];
      return plan?.modelLimits?.[modelIndex] ?? {};
    });
  }

  /** Returns the address of an upstream's scope; undefined if no upstream has the scope any more. */
  #upstreamAddress(index: UpstreamScopeIndex): ScopeAddress | undefined {
    const { upstreams, live } = this.#options;
    const scope = live.upstreamScopes.scopeAt(index);
    if (scope === undefined) return undefined;
    return {
      kind: 'upstream',
      index,
      scopeId: scope.id,
      minute: upstreams.minute,
      wordsOf: (name) =>
        name === 'tokens_per_minute' || name === 'calls_in_flight'
          ? upstreams.stockOf(index, name)
          : undefined,
      limits: () => live.upstreamScopes.scopeAt(index)?.limits ?? {},
    };
  }

  /** Returns no limits if the account's plan is gone: the account is then disabled, so it makes no calls. */
  #accountLimitsOf(account: AccountIndex): Partial<QuotaLimits> {
    const { live, ledger } = this.#options;
    const plan = live.catalog.plans[ledger.planIndexOf(account)];
    if (plan === undefined) return {};
    const { quotas, requestsPerMinute, callsPerDay, callsInFlightMax: callsInFlight } = plan;
    return { ...quotas, requestsPerMinute, callsPerDay, callsInFlight };
  }
}
