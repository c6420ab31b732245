/**
 * The console's state in the browser: the open page, in the address (hash routing), so that going back and
 * links work; and the colours that the operator chose. Pages and charts use it. Browser.
 *
 * Must hold: no address, from whomever it comes, leads out of the console (test/e2e/console-oidc.test.ts).
 */
import { useEffect, useState } from 'preact/hooks';

/** Texts by name; empty for none. */
export type Filters = Readonly<Record<string, string>>;

/** The parts of an address such as `#/accounts/acct_…` or `#/calls?model=m`. */
interface PageAddress {
  readonly page: string;
  /** The item that is open in the page; empty if none is. */
  readonly item: string;
  readonly filters: Filters;
}

function readAddress(): PageAddress {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2);
  const [page = '', item = ''] = path.split('/');
  return {
    page: page === '' ? 'overview' : page,
    item: decode(item),
    filters: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** An address that somebody typed may not be percent-encoded. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Empty filters are left out. */
export function addressOf(page: string, item = '', filters: Filters = {}): string {
  const given = new URLSearchParams(Object.entries(filters).filter(([, text]) => text !== '')).toString();
  return `#/${page}${item === '' ? '' : `/${encodeURIComponent(item)}`}${given === '' ? '' : `?${given}`}`;
}

export function go(page: string, item = ''): void {
  location.hash = addressOf(page, item);
}

/** Puts filters into the address of a page, without a new step to go back to. */
export function putFilters(page: string, filters: Filters): void {
  location.replace(addressOf(page, '', filters));
}

export function usePageAddress(): PageAddress {
  const [address, setAddress] = useState(readAddress);
  useEffect(() => {
    const onChange = (): void => setAddress(readAddress());
    addEventListener('hashchange', onChange);
    return () => removeEventListener('hashchange', onChange);
  }, []);
  return address;
}

const RETURN_KEY = 'tollgate-return';

/** Leaves the console for a sign-in elsewhere, after which `comeBack` opens the present page again. */
export function leaveTo(url: string): void {
  sessionStorage.setItem(RETURN_KEY, location.hash);
  location.assign(url);
}

/** `leaveTo` has stored only the part of an address after `#`, which cannot lead out of the console. */
export function comeBack(): void {
  const hash = sessionStorage.getItem(RETURN_KEY);
  sessionStorage.removeItem(RETURN_KEY);
  if (hash !== null && location.hash === '') history.replaceState(null, '', hash === '' ? '#/' : hash);
}

/** Long enough for a browser to begin to save a file. */
const SAVED_MS = 10_000;

/** Gives the browser a file to save. By its byte order mark spreadsheets read it as UTF-8. */
export function saveText(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(['\ufeff', text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), SAVED_MS);
}

export const THEMES = ['system', 'light', 'dark'] as const;
type Theme = (typeof THEMES)[number];

const STORAGE_KEY = 'tollgate-theme';
const DARK = matchMedia('(prefers-color-scheme: dark)');
const watchers = new Set<() => void>();

export const themeOf = (name: string | null): Theme => THEMES.find((theme) => theme === name) ?? 'system';

export function storedTheme(): Theme {
  return themeOf(localStorage.getItem(STORAGE_KEY));
}

export function chooseTheme(theme: Theme): void {
  localStorage.setItem(STORAGE_KEY, theme);
  applyTheme(theme);
}

export function applyTheme(theme: Theme): void {
  const dark = theme === 'dark' || (theme === 'system' && DARK.matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  for (const watcher of watchers) watcher();
}

/** Calls back when the colours have changed: charts are painted anew. Returns a function that stops that. */
export function onThemeChange(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** The value of a custom property of the style sheet: `--accent`. */
export function colorOf(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

DARK.addEventListener('change', () => applyTheme(storedTheme()));

/**
 * As `GET /admin/v1/calls` takes them: accounts, groups (with those below) and keys by id or name; `status`
 * such as `500` or `5xx`; `failed` is `true` for those with a code; times in Unix seconds.
 */
export const CALL_FILTERS = [
  'account',
  'group',
  'key',
  'model',
  'upstream',
  'status',
  'code',
  'failed',
  'from',
  'to',
] as const;

export type CallFilters = Partial<Readonly<Record<(typeof CALL_FILTERS)[number], string>>>;

export const callsAddress = (filters: CallFilters): string => addressOf('calls', '', { ...filters });

export const callAddress = (requestId: string): string => addressOf('calls', requestId);
