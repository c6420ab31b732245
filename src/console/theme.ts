/**
 * Light, dark, or as the system has it; remembered by the browser. Browser.
 */
export type Theme = 'system' | 'light' | 'dark';
export const THEMES: readonly Theme[] = ['system', 'light', 'dark'];

const STORAGE_KEY = 'tollgate-theme';
const DARK = matchMedia('(prefers-color-scheme: dark)');
const watchers = new Set<() => void>();

export function storedTheme(): Theme {
  const stored = localStorage.getItem(STORAGE_KEY);
  return THEMES.find((theme) => theme === stored) ?? 'system';
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

/** Calls back when the colours have changed; charts are painted and must be painted anew. */
export function onThemeChange(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** Of a custom property of the style sheet: `--accent`. */
export function colorOf(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

DARK.addEventListener('change', () => applyTheme(storedTheme()));
