/**
 * What stands around every page: the way to the others, how the gateway is, colours, signing out. Browser.
 */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Badge } from './controls.js';
import { duration } from './format.js';
import { Icon, type IconName } from './icons.js';
import { addressOf } from './route.js';
import { THEMES, chooseTheme, storedTheme, type Theme } from './theme.js';
import type { Status } from './views.js';

const PAGES: readonly (readonly [IconName, string])[] = [
  ['overview', 'Overview'],
  ['accounts', 'Accounts'],
  ['usage', 'Usage'],
  ['playground', 'Playground'],
  ['upstreams', 'Upstreams'],
  ['settings', 'Settings'],
];

interface ShellProps {
  readonly page: string;
  readonly status: Status | undefined;
  readonly connected: boolean;
  readonly onLeave: () => void;
  readonly children: ComponentChildren;
}

export function Shell({ page, status, connected, onLeave, children }: ShellProps) {
  return (
    <div class="shell">
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById('content')?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="side">
        <p class="brand">
          <Mark /> Tollgate
        </p>
        <nav aria-label="Pages">
          {PAGES.map(([name, title]) => (
            <a key={name} href={addressOf(name)} aria-current={name === page ? 'page' : undefined}>
              <Icon name={name} />
              <span>{title}</span>
            </a>
          ))}
        </nav>
        <div class="side-end">
          <Health status={status} connected={connected} />
          <ThemeChoice />
          <button type="button" class="quiet" onClick={onLeave}>
            <Icon name="out" /> Sign out
          </button>
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

function Health({ status, connected }: Pick<ShellProps, 'status' | 'connected'>) {
  const broken = status !== undefined && !status.store.ok;
  return (
    <div class="health" role="status">
      {!connected ? (
        <Badge tone="warn">Connecting…</Badge>
      ) : broken ? (
        <Badge tone="bad">Books not written</Badge>
      ) : status?.ready === false ? (
        <Badge tone="warn">Draining</Badge>
      ) : (
        <Badge tone="good">Serving</Badge>
      )}
      {status === undefined ? null : (
        <small class="muted">
          {status.version}, up {duration(status.uptime_seconds)}
        </small>
      )}
    </div>
  );
}

function ThemeChoice() {
  const [theme, setTheme] = useState<Theme>(storedTheme);
  return (
    <label class="theme">
      <span>Colours</span>
      <select
        aria-label="Colours"
        value={theme}
        onChange={(event) => {
          const chosen = THEMES.find((known) => known === event.currentTarget.value) ?? 'system';
          setTheme(chosen);
          chooseTheme(chosen);
        }}
      >
        <option value="system" selected={theme === 'system'}>
          System
        </option>
        <option value="light" selected={theme === 'light'}>
          Light
        </option>
        <option value="dark" selected={theme === 'dark'}>
          Dark
        </option>
      </select>
    </label>
  );
}

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" />
      <path d="M7 23V11a2 2 0 0 1 2-2h1a2 2 0 0 1 2 2v12M12 14l13-4v3.5l-13 4" />
    </svg>
  );
}
