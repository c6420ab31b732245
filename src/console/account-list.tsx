/**
 * The list of accounts, with the heads of its columns, which sort it: a virtual list, which accounts-page.tsx
 * shows. The arrows, Page Up and Down, Home and End move between rows. Browser.
 *
 * Without a filter, an account's row in the list is the slot that a cursor names, so any page can be fetched.
 * With a filter only the order of pages is known, and the list grows when its end comes into sight.
 *
 * Must hold: of a hundred thousand rows only those in sight, and some beyond, are fetched and are in the
 * document (test/e2e/console-accounts.test.ts). An account that a filter finds no longer leaves the list at
 * the next refresh (test/e2e/console-pages.test.ts).
 */
import { useEffect, useLayoutEffect, useRef, useState, useCallback } from 'preact/hooks';
import type { AccountView, ListView } from '../admin/views.js';
import { get, queryOf, textOf, useRefresh, useRows } from './api.js';
import { addressOf } from './browser.js';
import { Money, Name, StatusBadge } from './controls.js';
import { number, shortNumber } from './format.js';

/** The height of `.row` and `.row-place` in style/accounts.css, in pixels. */
const ROW_PX = 52;
/** Rows that are drawn beyond the edges, so that scrolling shows no gap. */
const MARGIN_ROWS = 8;
/** Browsers draw no box higher than some 17 million pixels. Operators with more accounts have to search. */
export const ROWS_MAX = 300_000;

interface AccountListProps {
  readonly rows: AccountRows;
  /** Id of the account whose panel is open; empty if none is. */
  readonly openId: string;
  /** Undefined for the order of creation. */
  readonly order: AccountOrder | undefined;
  readonly onOrder: (order: AccountOrder | undefined) => void;
}

/** The heads of the columns, the order that a click on each sorts by, and its class. */
const COLUMNS: readonly (readonly [text: string, sort: SortedBy, className: string])[] = [
  ['Name', 'name', ''],
  ['Plan', 'plan', 'row-plan'],
  ['This minute', 'requests_this_minute', 'row-figure row-minute'],
  ['Today', 'calls_today', 'row-figure row-today'],
  ['Balance', 'balance', 'row-figure row-balance'],
];

/** The first click sorts from A or the largest number, the second the other way; the third ends sorting. */
function nextOrder(order: AccountOrder | undefined, by: SortedBy): AccountOrder | undefined {
  const isNumber = by !== 'name' && by !== 'plan';
  if (order?.by !== by) return { by, descending: isNumber };
  return order.descending === isNumber ? { by, descending: !isNumber } : undefined;
}

function Heads({ order, onOrder }: Pick<AccountListProps, 'order' | 'onOrder'>) {
  return (
    <div class="row row-heads" role="group" aria-label="Sort the accounts by">
      {COLUMNS.map(([text, by, className]) => {
        const isSorted = order?.by === by;
        return (
          <button
            key={by}
            type="button"
            class={`quiet ${className}`}
            aria-pressed={isSorted}
            aria-label={isSorted ? `${text}, sorted ${order.descending ? 'downwards' : 'upwards'}` : text}
            onClick={() => onOrder(nextOrder(order, by))}
          >
            {text} {isSorted ? (order.descending ? '↓' : '↑') : ''}
          </button>
        );
      })}
    </div>
  );
}

export function AccountList({ rows, openId, order, onOrder }: AccountListProps) {
  const box = useRef<HTMLDivElement>(null);
  const [topPx, setTopPx] = useState(0);
  const [heightPx, setHeightPx] = useState(600);
  /** The row that gets the focus as soon as it is drawn; undefined if none does. */
  const rowToFocus = useRef<number | undefined>(undefined);
  useEffect(() => {
    const watch = new ResizeObserver(() => setHeightPx(box.current?.clientHeight ?? 600));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);

  const count = Math.min(rows.count, ROWS_MAX);
  const first = Math.max(0, Math.floor(topPx / ROW_PX) - MARGIN_ROWS);
  const last = Math.min(count - 1, Math.ceil((topPx + heightPx) / ROW_PX) + MARGIN_ROWS);
  useEffect(() => rows.fetchRows(first, Math.max(first, last)), [first, last, rows.fetchRows, rows.count]);
  const focusRow = (): void => {
    if (rowToFocus.current === undefined) return;
    const row = box.current?.querySelector<HTMLElement>(`[data-row="${rowToFocus.current}"]`);
    if (row === null || row === undefined) return;
    rowToFocus.current = undefined;
    row.focus({ preventScroll: true });
  };
  useLayoutEffect(focusRow);

  const onKeyDown = (event: KeyboardEvent): void => {
    const moveFrom = MOVES[event.key];
    const row = Number((event.target as HTMLElement).dataset.row ?? NaN);
    if (moveFrom === undefined || Number.isNaN(row)) return;
    event.preventDefault();
    // One row less than fit, so that the last row in sight stays in sight.
    const pageRows = Math.floor(heightPx / ROW_PX) - 1;
    const nextRow = Math.min(count - 1, Math.max(0, moveFrom(row, pageRows, count)));
    rowToFocus.current = nextRow;
    const element = box.current!;
    if (nextRow * ROW_PX < element.scrollTop) element.scrollTop = nextRow * ROW_PX;
    if ((nextRow + 1) * ROW_PX > element.scrollTop + heightPx)
      element.scrollTop = (nextRow + 1) * ROW_PX - heightPx;
    // A row that is drawn already gets the focus now: without scrolling nothing would be drawn again.
    focusRow();
    setTopPx(element.scrollTop);
  };

  const drawnRows = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  return (
    <>
      <Heads order={order} onOrder={onOrder} />
      <div
        class="rows"
        ref={box}
        role="list"
        aria-label="Accounts"
        onScroll={(event) => setTopPx(event.currentTarget.scrollTop)}
        onKeyDown={onKeyDown}
      >
        <div class="rows-inner" style={{ height: `${count * ROW_PX}px` }} role="presentation">
          {drawnRows.map((row) => (
            <Row key={row} row={row} count={count} account={rows.accountAt(row)} openId={openId} />
          ))}
        </div>
      </div>
    </>
  );
}

/** The row to which a key of the keyboard moves the focus, from `row`. It may lie outside of the list. */
const MOVES: Readonly<Record<string, (row: number, pageRows: number, count: number) => number>> = {
  ArrowDown: (row) => row + 1,
  ArrowUp: (row) => row - 1,
  PageDown: (row, pageRows) => row + pageRows,
  PageUp: (row, pageRows) => row - pageRows,
  Home: () => 0,
  End: (_, __, count) => count - 1,
};

interface RowProps {
  /** From 0. */
  readonly row: number;
  /** How many rows the list has. */
  readonly count: number;
  /** Undefined while it is being fetched. */
  readonly account: AccountView | undefined;
  readonly openId: string;
}

function Row({ row, count, account, openId }: RowProps) {
  const style = { transform: `translateY(${row * ROW_PX}px)` };
  return (
    <div class="row-place" style={style} role="listitem" aria-setsize={count} aria-posinset={row + 1}>
      {account === undefined ? (
        <span class="row loading">…</span>
      ) : (
        <a
          class="row"
          data-row={row}
          href={addressOf('accounts', account.id)}
          aria-current={account.id === openId ? 'true' : undefined}
        >
          <span class="row-name">
            <Name text={account.name} />
            {account.group_name !== null && (
              <small class="muted">
                <Name text={account.group_name} />
              </small>
            )}
            {account.active && account.plan_missing !== true ? null : <StatusBadge account={account} />}
          </span>
          <span class="row-plan muted">{account.plan}</span>
          <span class="row-figure row-minute muted">{shortNumber(account.requests_this_minute)}</span>
          <span class="row-figure row-today muted">{shortNumber(account.calls_today)}</span>
          <span class="row-figure row-balance">
            <Money amount={account.balance} decimalsMax={4} />
          </span>
        </a>
      )}
    </div>
  );
}

/** Rows of a page, which takes the gateway 1 ms. */
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
type SortedBy = 'name' | 'plan' | 'requests_this_minute' | 'calls_today' | 'balance';

export interface AccountOrder {
  readonly by: SortedBy;
  readonly descending: boolean;
}

interface AccountRows {
  /** How many rows there are, as far as is known. */
  readonly count: number;
  /** Whether there may be more rows. */
  readonly hasMore: boolean;
  /** Undefined until the row has been fetched. */
  readonly accountAt: (row: number) => AccountView | undefined;
  /** To be called when other rows come into sight. */
  readonly fetchRows: (first: number, last: number) => void;
  readonly refresh: () => void;
  readonly error: string | undefined;
}

/** The cursor of the first page. */
const FIRST_CURSOR = '0';

/** The rows that have come. Without a filter there may be gaps, and only `rows` is used. */
interface FetchedRows {
  readonly rows: AccountView[];
  /** The cursor of the page that follows; FIRST_CURSOR until the first has come, null after the last. */
  readonly next: string | null;
  /** How many pages the rows are from. A page may be short, or empty, and not be the last. */
  readonly pages: number;
}

/** In `requestedPages` with a filter: the next page, whichever that is. */
const NEXT_PAGE = -1;

/** `total`: how many accounts there are without a filter; undefined while that is not known. */
export function useAccountRows(filter: AccountFilter, total: number | undefined): AccountRows {
  const { search, plan, group, active } = filter;
  const isFiltered = Object.values(filter).some((value) => value !== '');
  const fetched = useRef<FetchedRows>({ rows: [], next: FIRST_CURSOR, pages: 0 });
  /** Pages that are being fetched. Without a filter also those that have come. */
  const requestedPages = useRef(new Set<number>());
  /** The first and the last row in sight. */
  const inSight = useRef<readonly [number, number]>([0, 0]);
  /** Grows with each filter. Responses to an earlier filter are dropped. */
  const generation = useRef(0);
  /** Grows with each change of the refs, which by themselves draw nothing. */
  const [, setVersion] = useState(0);
  const [error, setError] = useState<string>();

  const fetchFrom = useCallback(
    /** `isRefresh`: fetches the page, for its counters, also if the page was fetched before. */
    async (page: number, cursor: string, isRefresh: boolean): Promise<void> => {
      if (requestedPages.current.has(page) && !isRefresh) return;
      requestedPages.current.add(page);
      const ownGeneration = generation.current;
      try {
        const query = queryOf({ cursor, limit: PAGE_ROWS, search, plan, group, active });
        const { data, next } = await get<ListView<AccountView>>(`/accounts${query}`);
        if (ownGeneration !== generation.current) return;
        const { rows } = fetched.current;
        if (!isFiltered) data.forEach((account, index) => (rows[page * PAGE_ROWS + index] = account));
        else if (isRefresh) {
          // The first page may have become shorter. If a second page has come meanwhile, the first is kept.
          if (fetched.current.pages === 1) fetched.current = { rows: [...data], next, pages: 1 };
        } else {
          requestedPages.current.delete(page);
          // If the list was refreshed meanwhile, this page may not be the next page any more.
          const isNext = cursor === fetched.current.next;
          if (isNext) fetched.current = { rows: [...rows, ...data], next, pages: fetched.current.pages + 1 };
          const { next: nextCursor } = fetched.current;
          // Of a million accounts a page may have none, and still not be the last.
          if (nextCursor !== null && (!isNext || data.length === 0)) void fetchFrom(page, nextCursor, false);
        }
        setError(undefined);
        setVersion((version) => version + 1);
      } catch (reason) {
        if (ownGeneration !== generation.current) return;
        requestedPages.current.delete(page);
        setError(textOf(reason));
      }
    },
    [search, plan, group, active],
  );

  const fetchRows = useCallback(
    (first: number, last: number): void => {
      inSight.current = [first, last];
      if (isFiltered) {
        const { rows, next } = fetched.current;
        if (next !== null && last >= rows.length - 1) void fetchFrom(NEXT_PAGE, next, false);
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
    fetched.current = { rows: [], next: FIRST_CURSOR, pages: 0 };
    requestedPages.current.clear();
    setVersion((version) => version + 1);
    fetchRows(0, 0);
  }, [fetchRows]);

  const refresh = useCallback((): void => {
    if (isFiltered) {
      // If the page of these rows could not be fetched, nothing else fetches that page again.
      fetchRows(...inSight.current);
      // Of the fetched pages only the first is refreshed, and only while it is the only one: it is mostly
      // looked at, and the cursors of later pages may have changed.
      if (fetched.current.pages === 1) void fetchFrom(0, FIRST_CURSOR, true);
      return;
    }
    const [first, last] = inSight.current;
    for (let page = Math.floor(first / PAGE_ROWS); page <= Math.floor(last / PAGE_ROWS); page++) {
      void fetchFrom(page, String(page * PAGE_ROWS), true);
    }
  }, [fetchFrom, fetchRows]);
  useRefresh(refresh, REFRESH_MS);

  const { rows, next } = fetched.current;
  return {
    count: isFiltered ? rows.length : Math.max(total ?? 0, rows.length),
    hasMore: isFiltered && next !== null,
    accountAt: (row) => rows[row],
    fetchRows,
    refresh,
    error,
  };
}

/** The gateway needs 15 ms for so many. Operators with more accounts have to search. */
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
  const rows = (view?.rows ?? []).toSorted((left, right) => sign * compare(left, right, order.by));
  return {
    count: rows.length,
    hasMore: false,
    accountAt: (row) => rows[row],
    fetchRows: () => undefined,
    refresh: reload,
    error:
      error ??
      (view?.hasMore === true
        ? `Sorted are the first ${number(SORTED_MAX)} of them: search for fewer to sort all.`
        : undefined),
  };
}

/** Returns 0 for equal accounts, which then stay in the order of their creation. */
function compare(left: AccountView, right: AccountView, by: SortedBy): number {
  if (by === 'name' || by === 'plan') return collator.compare(left[by], right[by]);
  return Number(left[by]) - Number(right[by]);
}
