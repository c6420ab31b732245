/**
 * Pictures beside words; never in their place. Browser.
 */
const PATHS = {
  overview: 'M3 12h4l3-8 4 16 3-8h4',
  accounts:
    'M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21v-1a6 6 0 0 1 14 0v1M17 4a4 4 0 0 1 0 7M19 15a6 6 0 0 1 3 5v1',
  usage: 'M4 20V10M10 20V4M16 20v-8M21 20H2',
  playground: 'M4 5h16v11H9l-5 4z',
  upstreams: 'M12 3v6M12 9l-7 6v6M12 9l7 6v6M12 9v12',
  settings: 'M4 7h10M18 7h2M16 5v4M4 17h2M10 17h10M8 15v4',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  check: 'M4 12l5 5L20 6',
  back: 'M15 5l-7 7 7 7',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5',
  plus: 'M12 5v14M5 12h14',
  out: 'M10 4H4v16h6M15 8l4 4-4 4M19 12H9',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
