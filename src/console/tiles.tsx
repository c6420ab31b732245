/**
 * Tiles, each a number with its name and a line that explains it. accounts-page.tsx, call-page.tsx and
 * overview-page.tsx use them. Browser. test/e2e/console.test.ts and console-numbers.test.ts there look at
 * what tiles show.
 */
import type { ComponentChildren } from 'preact';

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
