/**
 * What the console keeps in the browser: the page that is open, in the address, so that going back works and
 * a page can be linked to; and the colours that the operator chose.
 */
import { useEffect, useState } from 'preact/hooks';

/** From an address such as `#/accounts/acct_…`. */
export interface PageAddress {
  readonly page: string;
  /** What is open in the page; empty if nothing is. */
  readonly item: string;
}

function readAddress(): PageAddress {
  const [page = '', item = ''] = location.hash.replace(/^#\/?/, '').split('/');
  return { page: page === '' ? 'overview' : page, item: decode(item) };
}

/** An address that somebody typed may not be percent-encoded. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function addressOf(page: string, item = ''): string {
  return item === '' ? `#/${page}` : `#/${page}/${encodeURIComponent(item)}`;
}

export function go(page: string, item = ''): void {
  location.hash = addressOf(page, item);
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

/** Gives the browser a file to save. The text is UTF-8, and says so to spreadsheets. */
export function saveText(name: string, type: string, text: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob(['\ufeff', text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), SAVED_MS);
}

/** Chromium has begun to save long before. */
const SAVED_MS = 10_000;

export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

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

/** Calls back when the colours have changed, for charts, which are painted. Returns how to stop that. */
export function onThemeChange(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** The value of a custom property of the style sheet: `--accent`. */
export function colorOf(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

DARK.addEventListener('change', () => applyTheme(storedTheme()));
