/**
 * Figures of the moment, each with its name and what it is measured by. Browser.
 */
import type { ComponentChildren } from 'preact';

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
