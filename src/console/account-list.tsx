/**
 * The list of accounts, with the heads of its columns, which sort it: a virtual list, which accounts-page.tsx
 * shows. account-rows.ts fetches its rows. The arrows, Page Up and Down, Home and End move between rows.
 * Browser.
 *
 * Must hold: of a hundred thousand rows only those in sight, and some beyond, are in the document
 * (test/e2e/console-accounts.test.ts).
 */
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { AccountView } from '../admin/views.js';
import type { AccountOrder, AccountRows, SortedBy } from './account-rows.js';
import { addressOf } from './address.js';
import { Money, Name, StatusBadge } from './controls.js';
import { shortNumber } from './format.js';

/** The height of a row in pixels. style/accounts.css gets it as --row-px. */
const ROW_PX = 52;
/** Rows that are drawn beyond each edge of the box, so that scrolling shows no gap. */
const MARGIN_ROWS = 8;
/** The height of the list before it has been measured. */
const BOX_GUESS_PX = 600;
/** Browsers draw a box up to some 17 million pixels. Operators with more accounts have to search. */
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
const COLUMNS: readonly (readonly [text: string, by: SortedBy, className: string])[] = [
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
  const [heightPx, setHeightPx] = useState(BOX_GUESS_PX);
  /** The row that gets the focus as soon as it is drawn; undefined if none does. */
  const rowToFocus = useRef<number | undefined>(undefined);
  useEffect(() => {
    const observer = new ResizeObserver(() => setHeightPx(box.current?.clientHeight ?? BOX_GUESS_PX));
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);

  const count = Math.min(rows.count, ROWS_MAX);
  const firstRow = Math.max(0, Math.floor(topPx / ROW_PX) - MARGIN_ROWS);
  const lastRow = Math.min(count - 1, Math.ceil((topPx + heightPx) / ROW_PX) + MARGIN_ROWS);
  useEffect(
    () => rows.fetchRows(firstRow, Math.max(firstRow, lastRow)),
    [firstRow, lastRow, rows.fetchRows, rows.count],
  );
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
    // One row less than the box has, so that the last row in sight stays in sight.
    const pageRows = Math.floor(heightPx / ROW_PX) - 1;
    const nextRow = Math.min(count - 1, Math.max(0, moveFrom(row, pageRows, count)));
    rowToFocus.current = nextRow;
    const list = box.current!;
    if (nextRow * ROW_PX < list.scrollTop) list.scrollTop = nextRow * ROW_PX;
    if ((nextRow + 1) * ROW_PX > list.scrollTop + heightPx)
      list.scrollTop = (nextRow + 1) * ROW_PX - heightPx;
    // If the row is drawn already, it gets the focus now: without scrolling nothing is drawn again.
    focusRow();
    setTopPx(list.scrollTop);
  };

  const drawnRows = Array.from(
    { length: Math.max(0, lastRow - firstRow + 1) },
    (_, index) => firstRow + index,
  );
  return (
    <>
      <Heads order={order} onOrder={onOrder} />
      <div
        class="rows"
        style={{ '--row-px': `${ROW_PX}px` }}
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

/** By the name of a keyboard key: the row to which it moves the focus from `row`, perhaps beyond the list. */
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
