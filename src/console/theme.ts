/**
 * The console's colours, light or dark: the operator's choice, which the browser stores, or else the
 * system's. main.tsx shows the choice, chart.tsx paints by the colours. Browser.
 *
 * Must hold: when the colours change, charts are painted again (test/e2e/console.test.ts).
 */
export const THEMES = ['system', 'light', 'dark'] as const;
type Theme = (typeof THEMES)[number];

const THEME_KEY = 'tollgate-theme';
const SYSTEM_IS_DARK = matchMedia('(prefers-color-scheme: dark)');
const watchers = new Set<() => void>();

/** Returns `system` for any text that is no theme. */
export const themeOf = (name: string | null): Theme => THEMES.find((theme) => theme === name) ?? 'system';

export function storedTheme(): Theme {
  return themeOf(localStorage.getItem(THEME_KEY));
}

export function chooseTheme(theme: Theme): void {
  localStorage.setItem(THEME_KEY, theme);
  applyTheme(theme);
}

/** Sets the attribute by which style/theme.css chooses the colours, then has charts painted again. */
export function applyTheme(theme: Theme): void {
  const isDark = theme === 'dark' || (theme === 'system' && SYSTEM_IS_DARK.matches);
  document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
  for (const watcher of watchers) watcher();
}

/** Calls `watcher` when the colours have changed. Returns a function that stops the calls. */
export function onThemeChange(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** Returns the value of a custom property of the style sheet, such as `--accent`. */
export function colorOf(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

SYSTEM_IS_DARK.addEventListener('change', () => applyTheme(storedTheme()));
