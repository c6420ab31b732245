/**
 * Tables, which scroll sideways in a box of their own, with the keyboard too, and can be saved as CSV; and
 * tiles, each a number with its name. Most pages use them. Browser.
 *
 * Must hold: the CSV has all rows of the filter, not only those in sight, up to ROWS_OF_CSV_MAX, and exact
 * values without units (test/e2e/console-tables.test.ts).
 */
import type { ComponentChildren } from 'preact';
import { type CsvCell, csvOf } from '../core/csv.js';
import { type FirstRows, ROWS_OF_CSV_MAX } from './api.js';
import { useAction } from './api-hooks.js';
import { Button, ErrorText, Money, Name } from './controls.js';
import { ago, isoOf, moment, number } from './format.js';

interface ColumnHead {
  /** A hidden head is only for screen readers. */
  readonly head: string | { readonly hidden: string };
  /** The cell in a last line below all rows. The line is drawn only if the first column has such a cell. */
  readonly foot?: ComponentChildren;
}

interface Linked<Row> {
  /** Returns the address to which the content of a cell links; undefined for no link. */
  readonly href?: (row: Row) => string | undefined;
}

/** Null and an empty text are shown as a dash. */
interface TextColumn<Row> extends ColumnHead, Linked<Row> {
  readonly text: (row: Row) => string | null;
}

/** A column of numbers. Null is shown as a dash; 0 is no link. The CSV has the number without `format`. */
interface FigureColumn<Row> extends ColumnHead, Linked<Row> {
  readonly figure: (row: Row) => number | null;
  readonly format?: (figure: number) => string;
}

/** A column of decimal text, of which the CSV has all decimals; 0 is no link. */
interface MoneyColumn<Row> extends ColumnHead, Linked<Row> {
  readonly money: (row: Row) => string;
  readonly decimalsMax?: number;
}

/** A column of Unix seconds, shown as how long ago they were; the CSV has ISO 8601. */
interface AgeColumn<Row> extends ColumnHead, Linked<Row> {
  readonly seconds: (row: Row) => number | null;
  /** The text that is shown for null; a dash by default. */
  readonly nullText?: string;
}

/** A column whose cells the page makes itself. */
interface OtherColumn<Row> extends ColumnHead {
  readonly cell: (row: Row) => ComponentChildren;
  /** A column without it is not in the CSV. */
  readonly csvValue?: (row: Row) => CsvCell;
  /** A style class: `figure` for a column of numbers. */
  readonly class?: string;
}

/** The kind of a column follows from its field: `text`, `figure`, `money`, `seconds` or `cell`. */
export type Column<Row> =
  | TextColumn<Row>
  | FigureColumn<Row>
  | MoneyColumn<Row>
  | AgeColumn<Row>
  | OtherColumn<Row>;

function contentOf<Row>(column: Column<Row>, row: Row): ComponentChildren {
  if ('cell' in column) return column.cell(row);
  if ('money' in column) {
    const { decimalsMax } = column;
    const amount = column.money(row);
    const content = <Money amount={amount} {...(decimalsMax === undefined ? {} : { decimalsMax })} />;
    return Number(amount) === 0 ? content : linked(column, row, content);
  }
  if ('seconds' in column) {
    const seconds = column.seconds(row);
    if (seconds === null) return column.nullText ?? '–';
    return linked(column, row, <span title={moment(seconds)}>{ago(seconds, Date.now())}</span>);
  }
  const value = 'text' in column ? column.text(row) : column.figure(row);
  if (value === null || value === '') return '–';
  const content = typeof value === 'string' ? <Name text={value} /> : formatOf(column)(value);
  return value === 0 ? content : linked(column, row, content);
}

function linked<Row>({ href }: Linked<Row>, row: Row, content: ComponentChildren): ComponentChildren {
  const address = href?.(row);
  return address === undefined ? content : <a href={address}>{content}</a>;
}

const formatOf = <Row,>(column: Column<Row>): ((figure: number) => string) =>
  ('figure' in column ? column.format : undefined) ?? number;

function classOf<Row>(column: Column<Row>): string | undefined {
  if ('cell' in column) return column.class;
  return 'figure' in column || 'money' in column ? 'figure' : undefined;
}

/** Returns the function for the exact CSV value, without a unit; undefined if the CSV lacks the column. */
function csvValueOf<Row>(column: Column<Row>): ((row: Row) => CsvCell) | undefined {
  if ('cell' in column) return column.csvValue;
  if ('money' in column) return column.money;
  if ('text' in column) return column.text;
  if ('figure' in column) return column.figure;
  return (row) => {
    const seconds = column.seconds(row);
    return seconds === null ? null : isoOf(seconds);
  };
}

/** Long enough for a browser to begin to save a file. After that the memory of its text is freed. */
const SAVE_MS = 10_000;

/** Gives the browser a file to save. The byte order mark lets spreadsheets read the file as UTF-8. */
function saveText(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(['\ufeff', text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), SAVE_MS);
}

interface CsvProps<Row> {
  /** The name of the file. */
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  /** All rows of the filter, up to ROWS_OF_CSV_MAX. */
  readonly allRows: () => FirstRows<Row> | Promise<FirstRows<Row>>;
}

/** Saves all rows of a table as a file, not only those in sight. */
export function CsvButton<Row>({ label, columns, allRows }: CsvProps<Row>) {
  const { error, isBusy, run } = useAction(async () => {
    const csvColumns = columns.flatMap((column) => {
      const { head } = column;
      const value = csvValueOf(column);
      return value === undefined ? [] : [{ head: typeof head === 'string' ? head : head.hidden, value }];
    });
    const { rows, hasMore } = await allRows();
    const heads = csvColumns.map(({ head }) => head);
    const lines = rows.slice(0, ROWS_OF_CSV_MAX).map((row) => csvColumns.map(({ value }) => value(row)));
    const fileName = `${label.toLowerCase().replaceAll(' ', '-')}.csv`;
    saveText(fileName, 'text/csv;charset=utf-8', csvOf(heads, lines));
    // An error, so that nobody takes the saved rows for all rows.
    if (hasMore || rows.length > ROWS_OF_CSV_MAX) {
      throw new Error(
        `The file has the first ${number(lines.length)} rows; there are more. Filter for fewer to have all.`,
      );
    }
  });
  return (
    <>
      <ErrorText text={error} />
      <p class="table-end">
        <Button
          class="quiet"
          disabled={isBusy}
          aria-label={`Download CSV: ${label}`}
          title={`All rows, at most ${number(ROWS_OF_CSV_MAX)}`}
          onClick={() => run()}
        >
          Download CSV
        </Button>
      </p>
    </>
  );
}

interface TableProps<Row> {
  /** The name for screen readers and for the CSV file. */
  readonly label: string;
  readonly class?: string;
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row, index: number) => string;
  /** The cell of the first column is the head of its row. */
  readonly columns: readonly Column<Row>[];
  /** Returns all rows of the filter; needed if `rows` are not all. */
  readonly allRows?: CsvProps<Row>['allRows'] | undefined;
  /** Replaces the button that saves the CSV, for a CSV that the gateway writes. */
  readonly csv?: ComponentChildren;
}

export function Table<Row>({ label, class: className, rows, keyOf, columns, allRows, csv }: TableProps<Row>) {
  // On a phone style/pages.css shows `data-head`, because a table of the class `cards` has no line of heads.
  const cellsOf = (contentOfColumn: (column: Column<Row>) => ComponentChildren) =>
    columns.map((column, index) =>
      index === 0 ? (
        <th scope="row">{contentOfColumn(column)}</th>
      ) : (
        <td class={classOf(column)} data-head={typeof column.head === 'string' ? column.head : undefined}>
          {contentOfColumn(column)}
        </td>
      ),
    );
  const table = (
    <div class="table-box" tabIndex={0} role="region" aria-label={label}>
      <table class={className}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" class={classOf(column) === 'figure' ? 'figure' : undefined}>
                {typeof column.head === 'string' ? (
                  column.head
                ) : (
                  <span class="hidden">{column.head.hidden}</span>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)}>{cellsOf((column) => contentOf(column, row))}</tr>
          ))}
        </tbody>
        {columns[0]?.foot !== undefined && (
          <tfoot>
            <tr>{cellsOf(({ foot }) => foot)}</tr>
          </tfoot>
        )}
      </table>
    </div>
  );
  return (
    <div class="table">
      {table}
      {csv ?? (
        <CsvButton label={label} columns={columns} allRows={allRows ?? (() => ({ rows, hasMore: false }))} />
      )}
    </div>
  );
}

/** `hint`: a line below the value. Names are unique in their Tiles. */
export type Tile = readonly [name: string, value: ComponentChildren, hint: string];

interface TilesProps {
  /** The name of the tiles for screen readers. */
  readonly label: string;
  readonly tiles: readonly Tile[];
  readonly isSmall?: boolean;
}

export function Tiles({ label, tiles, isSmall = false }: TilesProps) {
  return (
    <dl class={isSmall ? 'tiles small' : 'tiles'} aria-label={label}>
      {tiles.map(([name, value, hint]) => (
        <div key={name} class="tile">
          <dt>{name}</dt>
          <dd>
            <b>{value}</b>
            <small class="muted">{hint}</small>
          </dd>
        </div>
      ))}
    </dl>
  );
}
