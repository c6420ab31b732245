/**
 * The accounts of a list of any length, of which only those in sight are fetched; and a list that is sorted.
 * accounts-page.tsx shows one of the two. Browser.
 *
 * Without a filter, an account's position in the list is the slot that a cursor names, so any part can be
 * asked for. With a filter only the order of pages is known, and the list grows when its end comes into sight
 * (test/e2e/console-accounts.test.ts).
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { AccountView, ListView } from '../admin/views.js';
import { get, queryOf, textOf, useRefresh, useView } from './api.js';

/** Rows of a page, which costs the gateway 1 ms. */
const PAGE_ROWS = 100;
/** How often the rows in sight are fetched again, for their counters. */
const REFRESH_MS = 3_000;

export interface AccountFilter {
  readonly search: string;
  readonly plan: string;
  /** Id of a group; accounts in groups below it are found too. */
  readonly group: string;
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
  /** How many rows there are, as far as is known. */
  readonly count: number;
  /** Whether there may be more rows. */
  readonly more: boolean;
  readonly at: (row: number) => AccountView | undefined;
  /** Call when other rows come into sight: it fetches them. */
  readonly look: (first: number, last: number) => void;
  readonly refresh: () => void;
  readonly error: string | undefined;
}

interface Found {
  rows: AccountView[];
  next: string | null;
}

/** `total`: how many accounts there are; undefined while it is not known. */
export function useAccountRows(filter: AccountFilter, total: number | undefined): AccountRows {
  const { search, plan, group, active } = filter;
  const filtered = Object.values(filter).some((value) => value !== '');
  const found = useRef<Found>({ rows: [], next: '0' });
  const asked = useRef(new Set<number>());
  const sight = useRef<readonly [number, number]>([0, 0]);
  /** Grows with each filter; responses to an earlier one are dropped. */
  const generation = useRef(0);
  const [, setVersion] = useState(0);
  const [error, setError] = useState<string>();

  const fetchFrom = useCallback(
    async (page: number, cursor: string, again: boolean): Promise<void> => {
      if (asked.current.has(page) && !again) return;
      asked.current.add(page);
      const mine = generation.current;
      try {
        const query = queryOf({ cursor, limit: PAGE_ROWS, search, plan, group, active });
        const { data, next } = await get<ListView<AccountView>>(`/accounts${query}`);
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
      } catch (reason) {
        if (mine !== generation.current) return;
        asked.current.delete(page);
        setError(textOf(reason));
      }
    },
    [search, plan, group, active],
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
    if (filtered) {
      // Only the first page: it is the one mostly looked at, and of the others it is not known where they
      // began.
      if (found.current.rows.length <= PAGE_ROWS && found.current.rows.length > 0)
        void fetchFrom(0, '0', true);
      return;
    }
    const [first, last] = sight.current;
    for (let page = Math.floor(first / PAGE_ROWS); page <= Math.floor(last / PAGE_ROWS); page++) {
      void fetchFrom(page, String(page * PAGE_ROWS), true);
    }
  }, [fetchFrom]);
  useRefresh(refresh, REFRESH_MS);

  const { rows, next } = found.current;
  return {
    count: filtered ? rows.length : Math.max(total ?? 0, rows.length),
    more: filtered && next !== null,
    at: (row) => rows[row],
    look,
    refresh,
    error,
  };
}

/**
 * As many as one request brings: the gateway needs 15 ms for them. An operator who has more searches first.
 */
const SORTED_MAX = 1_000;

const names = new Intl.Collator('en', { numeric: true });

/**
 * The accounts of a filter in the order of a column; undefined without an order. They are sorted here, so all
 * of them must be here: the gateway lists accounts only in the order of their creation.
 */
export function useSortedAccounts(
  filter: AccountFilter,
  order: AccountOrder | undefined,
): AccountRows | undefined {
  const query = queryOf({ limit: SORTED_MAX, ...filter });
  const { view, error, reload } = useView<ListView<AccountView>>(
    order === undefined ? undefined : `/accounts${query}`,
    REFRESH_MS,
  );
  if (order === undefined) return undefined;
  const sign = order.descending ? -1 : 1;
  const rows = (view?.data ?? []).toSorted((left, right) => sign * compare(left, right, order.by));
  const isPart = view !== undefined && view.next !== null;
  return {
    count: rows.length,
    more: false,
    at: (row) => rows[row],
    look: () => undefined,
    refresh: reload,
    error:
      error ??
      (isPart ? `Sorted are the first ${SORTED_MAX} of them: search for fewer to sort all.` : undefined),
  };
}

/** Equal accounts stay in the order of their creation. */
function compare(left: AccountView, right: AccountView, by: SortedBy): number {
  if (by === 'name' || by === 'plan') return names.compare(left[by], right[by]);
  return Number(left[by]) - Number(right[by]);
}
