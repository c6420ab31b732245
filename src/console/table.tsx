/**
 * A table that scrolls sideways in its own box, with the keyboard too. Browser.
 */
import type { ComponentChildren } from 'preact';

export interface Column {
  readonly text: string;
  /** Of numbers, which stand below each other. */
  readonly figure?: boolean;
  /** Whether its head is for screen readers alone. */
  readonly hidden?: boolean;
}

export const figure = (text: string): Column => ({ text, figure: true });

interface TableProps {
  /** What it tells, for screen readers. */
  readonly label: string;
  readonly columns: readonly (Column | string)[];
  readonly class?: string;
  readonly footer?: ComponentChildren;
  /** Its rows. */
  readonly children: ComponentChildren;
}

export function Table({ label, columns, class: className, footer, children }: TableProps) {
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label={label}>
      <table class={className}>
        <thead>
          <tr>
            {columns.map((column) => (
              <Head {...(typeof column === 'string' ? { text: column } : column)} />
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
        {footer === undefined ? null : <tfoot>{footer}</tfoot>}
      </table>
    </div>
  );
}

function Head({ text, figure: isFigure = false, hidden = false }: Column) {
  return (
    <th scope="col" class={isFigure ? 'figure' : undefined}>
      {hidden ? <span class="hidden">{text}</span> : text}
    </th>
  );
}

/*
 * Figures of the moment, each with its name and what it is measured by. Browser.
 */

export type Tile = readonly [name: string, value: ComponentChildren, hint: string];

interface TilesProps {
  /** What they tell together, for screen readers. */
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
