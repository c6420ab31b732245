/**
 * The accounts of a filter in the order of one of their columns. Browser.
 *
 * They are sorted here, so all of them must be here: the gateway lists accounts in the order of their creation alone.
 */
import { useCallback, useEffect, useState } from 'preact/hooks';
import type { AccountFilter, AccountOrder, AccountRows } from './account-rows.js';
import { get, queryOf, wordsOf } from './api.js';
import type { Account, List } from './views.js';

/** As many as one request brings: the gateway needs 15 ms for them. Beyond it one searches first. */
const SORTED_MAX = 1_000;
const REFRESH_MS = 3_000;

const names = new Intl.Collator('en', { numeric: true });

/** Undefined without an order. */
export function useSortedAccounts(
  { search, plan, active }: AccountFilter,
  order: AccountOrder | undefined,
): AccountRows | undefined {
  const [accounts, setAccounts] = useState<readonly Account[]>([]);
  const [problem, setProblem] = useState<string>();
  const isWanted = order !== undefined;
  const refresh = useCallback((): void => {
    if (!isWanted || document.hidden) return;
    get<List<Account>>(`/accounts${queryOf({ limit: SORTED_MAX, search, plan, active })}`).then(
      ({ data, next }) => {
        setAccounts(data);
        const isPart = next !== null;
        setProblem(
          isPart ? `Sorted are the first ${SORTED_MAX} of them: search for fewer to sort all.` : undefined,
        );
      },
      (error: unknown) => setProblem(wordsOf(error)),
    );
  }, [isWanted, search, plan, active]);
  useEffect(() => {
    refresh();
    const timer = setInterval(refresh, REFRESH_MS);
    return () => clearInterval(timer);
  }, [refresh]);
  if (order === undefined) return undefined;
  const rows = accounts.toSorted(
    (left, right) => (order.descending ? -1 : 1) * compare(left, right, order.by),
  );
  return { count: rows.length, more: false, at: (row) => rows[row], look: () => undefined, refresh, problem };
}

/** Equal ones stay in the order of their creation. */
function compare(left: Account, right: Account, by: AccountOrder['by']): number {
  if (by === 'name' || by === 'plan') return names.compare(left[by], right[by]);
  return Number(left[by]) - Number(right[by]);
}
