/**
 * Tables that scroll sideways in a box of their own, with the keyboard too; and tiles, each a number with its
 * name. Browser.
 */
import type { ComponentChildren } from 'preact';

export type Column<Row> = readonly [
  /** A hidden head is for screen readers alone. */
  head: string | { readonly hidden: string },
  cell: (row: Row, index: number) => ComponentChildren,
  /** `figure` for a column of numbers, which stand below each other. */
  className?: string | undefined,
  /** In the last line, below all rows. */
  foot?: ComponentChildren,
];

interface TableProps<Row> {
  /** For screen readers. */
  readonly label: string;
  readonly class?: string;
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row, index: number) => string;
  /** The first one is the head of its row. */
  readonly columns: readonly Column<Row>[];
}

export function Table<Row>({ label, class: className, rows, keyOf, columns }: TableProps<Row>) {
  const line = (contentOf: (column: Column<Row>) => ComponentChildren) =>
    columns.map((column, index) =>
      index === 0 ? <th scope="row">{contentOf(column)}</th> : <td class={column[2]}>{contentOf(column)}</td>,
    );
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={label}>
      <table class={className}>
        <thead>
          <tr>
            {columns.map(([head, , ofColumn]) => (
              <th scope="col" class={ofColumn === 'figure' ? ofColumn : undefined}>
                {typeof head === 'string' ? head : <span class="hidden">{head.hidden}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={keyOf(row, at)}>{line(([, cell]) => cell(row, at))}</tr>
          ))}
        </tbody>
        {columns[0]?.[3] === undefined ? null : (
          <tfoot>
            <tr>{line(([, , , foot]) => foot)}</tr>
          </tfoot>
        )}
      </table>
    </div>
  );
}

export type Tile = readonly [name: string, value: ComponentChildren, hint: string];

interface TilesProps {
  /** For screen readers. */
  readonly label: string;
  readonly tiles: readonly Tile[];
  readonly small?: boolean;
}

export function Tiles({ label, tiles, small = false }: TilesProps) {
  return (
    <dl class={small ? 'tiles small' : 'tiles'} aria-label={label}>
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
