/**
 * Fetches the accounts that account-list.tsx draws: page by page as rows come into sight, or all, to be
 * sorted. accounts-page.tsx chooses between the two. Browser.
 *
 * Accounts are never deleted. So without a filter an account's row in the list is its slot, and a slot is a
 * cursor: any page can be fetched. With a filter each page names the next, and the list grows at its end.
 *
 * Must hold: only the pages in sight are fetched, even of a hundred thousand accounts
 * (test/e2e/console-accounts.test.ts). A change that is made here is shown at once, in whatever page its row
 * is (test/unit/console/account-rows.test.ts). At the next refresh an account leaves the list if the filter
 * does not find it any more. The list does not end with a page without rows (test/e2e/console-pages.test.ts).
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { AccountView, ListView } from '../admin/views.js';
import { get, queryOf, textOf } from './api.js';
import { useRefresh, useRows } from './api-hooks.js';
import { number } from './format.js';

/** How many rows a page has. The gateway needs 1 ms for a page. */
const PAGE_ROWS = 100;
/** How often the rows in sight are fetched again, for their counters. */
const REFRESH_MS = 3_000;

export interface AccountFilter {
  readonly search: string;
  readonly plan: string;
  /** Id of a group; accounts in groups below it are found too. */
  readonly group: string;
  /** '', 'true' or 'false'; '' finds both. */
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
  /** Whether there may be more rows than `count`; never without a filter, where `count` is the total. */
  readonly hasMore: boolean;
  /** Undefined until the row has been fetched. */
  readonly accountAt: (row: number) => AccountView | undefined;
  /** To be called when other rows come into sight, from row `first`, counted from 0, to row `last`. */
  readonly fetchRows: (first: number, last: number) => void;
  /** Shows the changed account in its row, at once. */
  readonly onChanged: (account: AccountView) => void;
  /** Fetches the rows in sight again, at once. */
  readonly refresh: () => void;
  /** Why the last request failed, or not all accounts are sorted. */
  readonly error: string | undefined;
}

const FIRST_CURSOR = '0';

/** The rows that have come. Without a filter, pages fill `rows` in any order, and only `rows` is used. */
interface FetchedRows {
  readonly rows: AccountView[];
  /** The cursor of the page that follows; FIRST_CURSOR until the first has come, null after the last. */
  readonly next: string | null;
  /** How many pages the rows are from. A page may be short, or empty, and not be the last. */
  readonly pages: number;
}

/** In place of a page's number: the next page of a filtered list. There only a refresh names a page, 0. */
const NEXT_PAGE = -1;

/** `total`: how many accounts there are without a filter; undefined while that is not known. */
export function useAccountRows(filter: AccountFilter, total: number | undefined): AccountRows {
  const { search, plan, group, active } = filter;
  const isFiltered = Object.values(filter).some((value) => value !== '');
  const fetched = useRef<FetchedRows>({ rows: [], next: FIRST_CURSOR, pages: 0 });
  /** The pages that are being fetched, by number; without a filter also those that have come. */
  const requestedPages = useRef(new Set<number>());
  /** The first and the last row in sight. */
  const inSight = useRef<readonly [first: number, last: number]>([0, 0]);
  /** Counts changes of the filter. Responses to a request from before the last change are dropped. */
  const filterGeneration = useRef(0);
  /** Counts changes of the refs: Preact draws the list again only if a state changes. */
  const [, setChanges] = useState(0);
  const [error, setError] = useState<string>();

  /**
   * Adds the page at `cursor` to a filtered list, unless a refresh has replaced the list meanwhile. Returns
   * the cursor of the page to fetch now; null if none.
   */
  const appendPage = (cursor: string, { data, next }: ListView<AccountView>): string | null => {
    const { rows, pages, next: expectedCursor } = fetched.current;
    if (cursor !== expectedCursor) return expectedCursor;
    fetched.current = { rows: [...rows, ...data], next, pages: pages + 1 };
    // A page without accounts may not be the last: the gateway searches a share of them for each page.
    return data.length === 0 ? next : null;
  };

  // A new function for each filter, from which `isFiltered` follows.
  const fetchPage = useCallback(
    /** `page`: a number, or NEXT_PAGE. A page that was fetched is fetched again only for a `refresh`. */
    async (page: number, cursor: string, purpose: 'first time' | 'refresh'): Promise<void> => {
      if (requestedPages.current.has(page) && purpose !== 'refresh') return;
      requestedPages.current.add(page);
      const sentGeneration = filterGeneration.current;
      try {
        const query = queryOf({ cursor, limit: PAGE_ROWS, search, plan, group, active });
        const received = await get<ListView<AccountView>>(`/accounts${query}`);
        if (sentGeneration !== filterGeneration.current) return;
        const { data, next } = received;
        if (!isFiltered) data.forEach((row, index) => (fetched.current.rows[page * PAGE_ROWS + index] = row));
        else if (purpose === 'refresh') {
          // The first page may be shorter now. If a second page has come meanwhile, the first is kept.
          if (fetched.current.pages === 1) fetched.current = { rows: [...data], next, pages: 1 };
        } else {
          requestedPages.current.delete(page);
          const nextCursor = appendPage(cursor, received);
          if (nextCursor !== null) void fetchPage(page, nextCursor, 'first time');
        }
        setError(undefined);
        setChanges((changes) => changes + 1);
      } catch (reason) {
        if (sentGeneration !== filterGeneration.current) return;
        requestedPages.current.delete(page);
        setError(textOf(reason));
      }
    },
    [search, plan, group, active],
  );

  /** For a list without a filter. */
  const fetchPagesInSight = async (purpose: 'first time' | 'refresh'): Promise<void> => {
    const [first, last] = inSight.current;
    const fetches: Promise<void>[] = [];
    for (let page = Math.floor(first / PAGE_ROWS); page <= Math.floor(last / PAGE_ROWS); page++)
      fetches.push(fetchPage(page, String(page * PAGE_ROWS), purpose));
    await Promise.all(fetches);
  };

  const fetchRows = useCallback(
    (first: number, last: number): void => {
      inSight.current = [first, last];
      const { rows, next } = fetched.current;
      if (!isFiltered) void fetchPagesInSight('first time');
      else if (next !== null && last >= rows.length - 1) void fetchPage(NEXT_PAGE, next, 'first time');
    },
    [fetchPage],
  );

  useEffect(() => {
    filterGeneration.current += 1;
    fetched.current = { rows: [], next: FIRST_CURSOR, pages: 0 };
    requestedPages.current.clear();
    setChanges((changes) => changes + 1);
    // Those that the list has told just now, for this filter.
    fetchRows(...inSight.current);
  }, [fetchRows]);

  const refetch = useCallback(async (): Promise<void> => {
    if (!isFiltered) return fetchPagesInSight('refresh');
    // Fetches the next page if that failed before: nothing else does.
    fetchRows(...inSight.current);
    // The first page is refreshed only while no other was fetched, because the cursors of later pages may
    // have changed. Operators mostly look at the first page.
    if (fetched.current.pages === 1) await fetchPage(0, FIRST_CURSOR, 'refresh');
  }, [fetchPage, fetchRows]);
  useRefresh(refetch, REFRESH_MS);
  const refresh = (): void => void refetch();

  const onChanged = (account: AccountView): void => {
    const changed = fetched.current.rows.findIndex(
      (row) => (row as AccountView | undefined)?.id === account.id,
    );
    if (changed >= 0) fetched.current.rows[changed] = account;
    setChanges((changes) => changes + 1);
    // The filter may find the account no more.
    refresh();
  };

  const { rows, next } = fetched.current;
  return {
    count: isFiltered ? rows.length : Math.max(total ?? 0, rows.length),
    hasMore: isFiltered && next !== null,
    accountAt: (row) => rows[row],
    fetchRows,
    onChanged,
    refresh,
    error,
  };
}

/** How many accounts can be sorted, for which the gateway needs 15 ms. Operators have to search for fewer. */
const SORTED_MAX = 1_000;

const collator = new Intl.Collator('en', { numeric: true });

/**
 * The accounts of a filter in the order of a column; undefined without an order. The gateway lists accounts
 * only in the order of their creation, so they are all fetched, up to SORTED_MAX, and sorted here.
 */
export function useSortedAccounts(
  filter: AccountFilter,
  order: AccountOrder | undefined,
): AccountRows | undefined {
  const path = order === undefined ? undefined : '/accounts';
  const { view, error, reload } = useRows<AccountView>(path, { ...filter }, SORTED_MAX, REFRESH_MS);
  if (order === undefined) return undefined;
  const sign = order.descending ? -1 : 1;
  const rows = (view?.rows ?? []).toSorted((first, second) => sign * compare(first, second, order.by));
  return {
    count: rows.length,
    hasMore: false,
    accountAt: (row) => rows[row],
    fetchRows: () => undefined,
    // All rows are fetched again.
    onChanged: reload,
    refresh: reload,
    error:
      error ??
      (view?.hasMore === true
        ? `Sorted are the first ${number(SORTED_MAX)} of them: search for fewer to sort all.`
        : undefined),
  };
}

/** 0 if the values are equal: then the accounts stay in the order of creation. Balances are decimal texts. */
function compare(first: AccountView, second: AccountView, by: SortedBy): number {
  if (by === 'name' || by === 'plan') return collator.compare(first[by], second[by]);
  return Number(first[by]) - Number(second[by]);
}
