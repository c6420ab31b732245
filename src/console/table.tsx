/**
 * Tables, which scroll sideways in a box of their own, with the keyboard too, and can be saved as CSV. Most
 * pages use them. Browser.
 *
 * Must hold: the CSV has all rows of the filter, not only those in sight, up to ROWS_OF_CSV_MAX, and exact
 * values without units. Who saves a file that may lack rows is told (test/e2e/console-tables.test.ts).
 */
import type { ComponentChildren } from 'preact';
import { type CsvCell, csvOf } from '../core/csv.js';
import { type FirstRows, ROWS_OF_CSV_MAX } from './api.js';
import { useAction } from './api-hooks.js';
import { Button, ErrorText, Money, Name } from './controls.js';
import { ago, isoOf, moment, number } from './format.js';

/** The fields of which a column has exactly one. It is the column's kind, and says what its cells show. */
interface CellValues<Row> {
  /** Null and an empty text are shown as a dash. */
  readonly text: (row: Row) => string | null;
  /** A number. Null is shown as a dash. */
  readonly figure: (row: Row) => number | null;
  /** Decimal text, of which the CSV has all decimals. */
  readonly money: (row: Row) => string;
  /** Unix seconds, shown as how long ago they were; the CSV has ISO 8601. */
  readonly seconds: (row: Row) => number | null;
  /** Whatever the page makes itself. */
  readonly cell: (row: Row) => ComponentChildren;
}
type Kind = keyof CellValues<never>;

type OfKind<Row, Own extends Kind> = Pick<CellValues<Row>, Own> &
  Readonly<Partial<Record<Exclude<Kind, Own>, never>>> & {
    /** A hidden head is only for screen readers. */
    readonly head: string | { readonly hidden: string };
    /** The cell in a last line below all rows. The line is drawn only if the first column has such a cell. */
    readonly foot?: ComponentChildren;
  };

interface Linked<Row> {
  /** The address to which the content of a cell links; undefined for no link. A dash and 0 are no links. */
  readonly href?: (row: Row) => string | undefined;
}

export type Column<Row> =
  | (OfKind<Row, 'text'> & Linked<Row>)
  // The CSV has the number without `format`.
  | (OfKind<Row, 'figure'> & Linked<Row> & { readonly format?: (figure: number) => string })
  | (OfKind<Row, 'money'> & Linked<Row> & { readonly decimalsMax?: number })
  // `nullText` is shown for null; a dash by default.
  | (OfKind<Row, 'seconds'> & Linked<Row> & { readonly nullText?: string })
  // The CSV lacks a column without `csvValue`. `class`: a style class, `figure` for numbers.
  | (OfKind<Row, 'cell'> & { readonly csvValue?: (row: Row) => CsvCell; readonly class?: string });

/** What a column does, whatever its kind is. */
interface Cells<Row> {
  readonly content: (row: Row) => ComponentChildren;
  /** The exact value, without a unit; undefined if the CSV lacks the column. */
  readonly csvValue: ((row: Row) => CsvCell) | undefined;
  readonly class?: string | undefined;
}

const DASH = '–';

function cellsOf<Row>(column: Column<Row>): Cells<Row> {
  if (column.cell !== undefined) {
    return { content: column.cell, csvValue: column.csvValue, class: column.class };
  }
  const linked = (row: Row, content: ComponentChildren): ComponentChildren => {
    const address = column.href?.(row);
    return address === undefined ? content : <a href={address}>{content}</a>;
  };
  if (column.money !== undefined) {
    const { money, decimalsMax } = column;
    const content = (row: Row): ComponentChildren => {
      const amount = money(row);
      const shown = <Money amount={amount} {...(decimalsMax === undefined ? {} : { decimalsMax })} />;
      return Number(amount) === 0 ? shown : linked(row, shown);
    };
    return { content, csvValue: money, class: 'figure' };
  }
  if (column.seconds !== undefined) {
    const { seconds, nullText = DASH } = column;
    const content = (row: Row): ComponentChildren => {
      const value = seconds(row);
      if (value === null) return nullText;
      return linked(row, <span title={moment(value)}>{ago(value, Date.now())}</span>);
    };
    const csvValue = (row: Row): CsvCell => {
      const value = seconds(row);
      return value === null ? null : isoOf(value);
    };
    return { content, csvValue };
  }
  if (column.figure !== undefined) {
    const { figure, format = number } = column;
    const content = (row: Row): ComponentChildren => {
      const value = figure(row);
      if (value === null) return DASH;
      return value === 0 ? format(value) : linked(row, format(value));
    };
    return { content, csvValue: figure, class: 'figure' };
  }
  const { text } = column;
  const content = (row: Row): ComponentChildren => {
    const value = text(row);
    return value === null || value === '' ? DASH : linked(row, <Name text={value} />);
  };
  return { content, csvValue: text };
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
      const { csvValue } = cellsOf(column);
      return csvValue === undefined
        ? []
        : [{ head: typeof head === 'string' ? head : head.hidden, csvValue }];
    });
    const { rows, hasMore, unread = [] } = await allRows();
    const heads = csvColumns.map(({ head }) => head);
    const lines = rows
      .slice(0, ROWS_OF_CSV_MAX)
      .map((row) => csvColumns.map(({ csvValue }) => csvValue(row)));
    const fileName = `${label.toLowerCase().replaceAll(' ', '-')}.csv`;
    saveText(fileName, 'text/csv;charset=utf-8', csvOf(heads, lines));
    const isCut = hasMore || rows.length > ROWS_OF_CSV_MAX;
    const problems = [
      ...(isCut
        ? [
            `The file has the first ${number(lines.length)} rows; there are more. Filter for fewer to have all.`,
          ]
        : []),
      ...(unread.length > 0
        ? [`Rows may be missing in the file: the gateway cannot read ${unread.join('; ')}.`]
        : []),
    ];
    // An error, so that nobody takes the saved rows for all rows.
    if (problems.length > 0) throw new Error(problems.join(' '));
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
  const drawnColumns = columns.map((column) => ({
    ...cellsOf(column),
    head: column.head,
    foot: column.foot,
  }));
  // On a phone style/pages.css shows `data-head`, because a table of the class `cards` has no line of heads.
  const lineOf = (contentOf: (column: (typeof drawnColumns)[number]) => ComponentChildren) =>
    drawnColumns.map((column, index) =>
      index === 0 ? (
        <th scope="row">{contentOf(column)}</th>
      ) : (
        <td class={column.class} data-head={typeof column.head === 'string' ? column.head : undefined}>
          {contentOf(column)}
        </td>
      ),
    );
  const table = (
    <div class="table-box" tabIndex={0} role="region" aria-label={label}>
      <table class={className}>
        <thead>
          <tr>
            {drawnColumns.map(({ head, class: columnClass }) => (
              <th scope="col" class={columnClass === 'figure' ? 'figure' : undefined}>
                {typeof head === 'string' ? head : <span class="hidden">{head.hidden}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={keyOf(row, index)}>{lineOf(({ content }) => content(row))}</tr>
          ))}
        </tbody>
        {columns[0]?.foot !== undefined && (
          <tfoot>
            <tr>{lineOf(({ foot }) => foot)}</tr>
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
