/**
 * The use of a scope according to the store, for a scope of which nothing is granted yet: by gateways that
 * shared nothing, or before the machine was started again. `LmdbCoordinator` starts a scope with it. Main
 * thread.
 *
 * Must hold: what was used of a minute, a day or a month stays used when limits begin to be shared. Test:
 * unit/sharing/lmdb-coordinator (what was used before there were leases counts).
 */
import type { WallMs } from '../core/units.js';
import { countsIn } from '../registry/quota-use.js';
import type { Store } from '../store/store.js';
import type { Stocks } from './coordinator.js';

export interface UsedBefore {
  readonly minuteUsed: number;
  /** How long ago it was counted. */
  readonly ageMs: number;
  readonly stocks: Stocks<{ readonly period: number; readonly used: bigint }>;
}

export type UseStore = Pick<Store, 'findAccount' | 'findSpending' | 'keys' | 'groups' | 'quotaUses'>;

/** Throws StoreError. Three reads at most, some microseconds. */
export function usedBefore(store: UseStore, scope: string, nowMs: WallMs): UsedBefore {
  const found = find(store, scope);
  if (found === undefined) return { minuteUsed: 0, ageMs: 0, stocks: {} };
  const { counts, quotas } = found;
  const of = (period: number, used: number) => ({ period, used: BigInt(used) });
  const { minuteUsed = 0, dayNumber = 0, dayCalls = 0 } = counts ?? {};
  return {
    minuteUsed,
    ageMs: nowMs - Math.max(counts?.takenMs ?? 0, quotas?.takenMs ?? 0),
    stocks: {
      calls_per_day: of(dayNumber, dayCalls),
      ...(quotas && {
        tokens_per_minute: of(0, quotas.minuteTokens),
        tokens_per_day: of(quotas.dayNumber, quotas.tokensPerDay),
        spend_per_day: of(quotas.dayNumber, quotas.spendPerDay),
        calls_per_month: of(quotas.monthNumber, quotas.callsPerMonth),
        tokens_per_month: of(quotas.monthNumber, quotas.tokensPerMonth),
        spend_per_month: of(quotas.monthNumber, quotas.spendPerMonth),
      }),
    },
  };
}

/** The scope of an account's rule for a model. No id of an account has a slash. */
export function modelScope(accountId: string, modelId: string): string {
  return `${accountId}/${modelId}`;
}

function find(store: UseStore, scope: string) {
  const slash = scope.indexOf('/');
  if (slash > 0) {
    const account = store.findAccount(scope.slice(0, slash));
    const quotas =
      account &&
      store.quotaUses.find({ kind: 'model', index: account.index, modelId: scope.slice(slash + 1) });
    return quotas && { counts: countsIn(quotas), quotas };
  }
  const account = store.findAccount(scope);
  if (account !== undefined) {
    const { index } = account;
    return { counts: store.findSpending(index), quotas: store.quotaUses.find({ kind: 'account', index }) };
  }
  const key = store.keys.find(scope);
  if (key !== undefined) {
    const { index } = key;
    return { counts: store.keys.findUse(index), quotas: store.quotaUses.find({ kind: 'key', index }) };
  }
  const group = store.groups.find(scope);
  const quotas = group && store.quotaUses.find({ kind: 'group', index: group.index });
  return quotas && { counts: countsIn(quotas), quotas };
}
