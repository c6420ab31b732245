/**
 * The accounts of a list of any length, of which only what is looked at is fetched. Browser.
 *
 * Without a filter an account's place in the list is the slot that its cursor names, so any part can be asked for. With one
 * only the order of pages is known, and the list grows as its end comes into sight.
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { get, queryOf, textOf } from './api.js';
import type { Account, List } from './views.js';

/** A page costs the gateway 1 ms. */
const PAGE_ROWS = 100;
/** Live counters of what is in sight are asked for so often. */
const REFRESH_MS = 3_000;

export interface AccountFilter {
  readonly search: string;
  readonly plan: string;
  /** Empty, `true` or `false`. */
  readonly active: string;
}

/** Columns that the list can be sorted by. */
export type SortedBy = 'name' | 'plan' | 'requests_this_minute' | 'calls_today' | 'balance';

export interface AccountOrder {
  readonly by: SortedBy;
  readonly descending: boolean;
}

export interface AccountRows {
  /** Rows that there are, as far as is known. */
  readonly count: number;
  /** Whether further ones may be found. */
  readonly more: boolean;
  readonly at: (row: number) => Account | undefined;
  /** These rows are in sight now. */
  readonly look: (first: number, last: number) => void;
  readonly refresh: () => void;
  readonly problem: string | undefined;
}

interface Found {
  rows: Account[];
  next: string | null;
}

/** `total`: accounts that there are; undefined while it is not known. */
export function useAccountRows(filter: AccountFilter, total: number | undefined): AccountRows {
  const { search, plan, active } = filter;
  const filtered = search !== '' || plan !== '' || active !== '';
  const found = useRef<Found>({ rows: [], next: '0' });
  const asked = useRef(new Set<number>());
  const sight = useRef<readonly [number, number]>([0, 0]);
  /** Responses of an earlier filter are dropped. */
  const generation = useRef(0);
  const [, setVersion] = useState(0);
  const [problem, setError] = useState<string>();

  const fetchFrom = useCallback(
    async (page: number, cursor: string, again: boolean): Promise<void> => {
      if (asked.current.has(page) && !again) return;
      asked.current.add(page);
      const mine = generation.current;
      try {
        const query = queryOf({ cursor, limit: PAGE_ROWS, search, plan, active });
        const { data, next } = await get<List<Account>>(`/accounts${query}`);
        if (mine !== generation.current) return;
        const { rows } = found.current;
        if (again || !filtered) data.forEach((account, index) => (rows[page * PAGE_ROWS + index] = account));
        else rows.push(...data);
        if (filtered && !again) {
          found.current.next = next;
          asked.current.delete(page);
        }
        setError(undefined);
        setVersion((version) => version + 1);
      } catch (error) {
        if (mine !== generation.current) return;
        asked.current.delete(page);
        setError(textOf(error));
      }
    },
    [search, plan, active],
  );

  const look = useCallback(
    (first: number, last: number): void => {
      sight.current = [first, last];
      if (filtered) {
        const { rows, next } = found.current;
        if (next !== null && last >= rows.length - 1) void fetchFrom(-1, next, false);
        return;
      }
      for (let page = Math.floor(first / PAGE_ROWS); page <= Math.floor(last / PAGE_ROWS); page++) {
        void fetchFrom(page, String(page * PAGE_ROWS), false);
      }
    },
    [fetchFrom],
  );

  useEffect(() => {
    generation.current += 1;
    found.current = { rows: [], next: '0' };
    asked.current.clear();
    setVersion((version) => version + 1);
    look(0, 0);
  }, [look]);

  const refresh = useCallback((): void => {
    if (document.hidden) return;
    if (filtered) {
      // A page of a search is known by where it began; the first is the one that is mostly looked at.
      if (found.current.rows.length <= PAGE_ROWS && found.current.rows.length > 0)
        void fetchFrom(0, '0', true);
      return;
    }
    const [first, last] = sight.current;
    for (let page = Math.floor(first / PAGE_ROWS); page <= Math.floor(last / PAGE_ROWS); page++) {
      void fetchFrom(page, String(page * PAGE_ROWS), true);
    }
  }, [fetchFrom]);
  useEffect(() => {
    const timer = setInterval(refresh, REFRESH_MS);
    return () => clearInterval(timer);
  }, [refresh]);

  const { rows, next } = found.current;
  return {
    count: filtered ? rows.length : Math.max(total ?? 0, rows.length),
    more: filtered && next !== null,
    at: (row) => rows[row],
    look,
    refresh,
    problem,
  };
}

/*
 * The accounts of a filter in the order of one of their columns. Browser.
 *
 * They are sorted here, so all of them must be here: the gateway lists accounts in the order of their creation alone.
 */

/** As many as one request brings: the gateway needs 15 ms for them. Beyond it one searches first. */
const SORTED_MAX = 1_000;
const SORTED_REFRESH_MS = 3_000;

const names = new Intl.Collator('en', { numeric: true });

/** Undefined without an order. */
export function useSortedAccounts(
  { search, plan, active }: AccountFilter,
  order: AccountOrder | undefined,
): AccountRows | undefined {
  const [accounts, setAccounts] = useState<readonly Account[]>([]);
  const [problem, setError] = useState<string>();
  const isWanted = order !== undefined;
  const refresh = useCallback((): void => {
    if (!isWanted || document.hidden) return;
    get<List<Account>>(`/accounts${queryOf({ limit: SORTED_MAX, search, plan, active })}`).then(
      ({ data, next }) => {
        setAccounts(data);
        const isPart = next !== null;
        setError(
          isPart ? `Sorted are the first ${SORTED_MAX} of them: search for fewer to sort all.` : undefined,
        );
      },
      (error: unknown) => setError(textOf(error)),
    );
  }, [isWanted, search, plan, active]);
  useEffect(() => {
    refresh();
    const timer = setInterval(refresh, SORTED_REFRESH_MS);
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
