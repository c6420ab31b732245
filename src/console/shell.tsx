/**
 * The frame that main.tsx puts around every page: links to the others, the gateway's state, the colours,
 * signing out; and the form to sign in. Browser.
 *
 * Must hold: the admin token is sent once and kept nowhere (test/e2e/console.test.ts, console-oidc.test.ts).
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { StatusDocument } from '../telemetry/status-document.js';
import { may, type OidcView, oidcView, operatorNow, signIn, useAction } from './api.js';
import { addressOf, chooseTheme, leaveTo, storedTheme, themeOf, THEMES } from './browser.js';
import { Badge, ErrorText, Icon, type IconName, Name, TextField, type Tone, useInput } from './controls.js';
import { duration } from './format.js';

const PAGES: readonly IconName[] = [
  'overview',
  'accounts',
  'groups',
  'calls',
  'usage',
  'playground',
  'upstreams',
  'settings',
  'changes',
  'operators',
];

/** Pages that a role cannot use are not offered to it. */
const offered = (name: IconName): boolean =>
  name === 'playground' ? may('playground') : name !== 'operators' || may('everything');

const titled = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1);

interface ShellProps {
  readonly page: string;
  readonly status: StatusDocument | undefined;
  readonly connected: boolean;
  /** Rejects if the operator may still be signed in. */
  readonly onLeave: () => Promise<void>;
  readonly children: ComponentChildren;
}

export function Shell({ page, status, connected, onLeave, children }: ShellProps) {
  const nav = useRef<HTMLElement>(null);
  const { error, busy, run: leave } = useAction(onLeave);
  // On a phone not all pages fit beside each other.
  useEffect(() => {
    const current = nav.current?.querySelector<HTMLElement>('[aria-current]');
    if (current) nav.current!.scrollLeft = current.offsetLeft - current.offsetWidth;
  }, [page]);
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
        <nav aria-label="Pages" ref={nav}>
          {PAGES.filter(offered).map((name) => (
            <a key={name} href={addressOf(name)} aria-current={name === page ? 'page' : undefined}>
              <Icon name={name} />
              <span>{titled(name)}</span>
            </a>
          ))}
        </nav>
        <div class="side-end">
          <Health status={status} connected={connected} />
          <Who />
          <ThemeChoice />
          <button type="button" class="quiet" disabled={busy} onClick={() => leave()}>
            <Icon name="out" /> Sign out
          </button>
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        <ErrorText text={error === undefined ? undefined : `You may still be signed in. ${error}`} />
        {children}
      </main>
    </div>
  );
}

function healthOf({ status, connected }: Pick<ShellProps, 'status' | 'connected'>): readonly [Tone, string] {
  if (!connected) return ['warn', 'Connecting…'];
  if (status !== undefined && !status.store.ok) return ['bad', 'Books not written'];
  return status?.ready === false ? ['warn', 'Draining'] : ['good', 'Serving'];
}

function Health(props: Pick<ShellProps, 'status' | 'connected'>) {
  const { status } = props;
  const [tone, text] = healthOf(props);
  return (
    <div class="health" role="status">
      <Badge tone={tone}>{text}</Badge>
      {status === undefined ? null : (
        <small class="muted">
          {status.version}, up {duration(status.uptime_seconds)}
        </small>
      )}
    </div>
  );
}

/** Who is signed in, and as what. */
function Who() {
  const operator = operatorNow();
  return operator === undefined ? null : (
    <p class="who">
      <Name text={operator.who} /> <Badge tone="plain">{operator.role}</Badge>
    </p>
  );
}

function ThemeChoice() {
  const [theme, setTheme] = useState(storedTheme);
  return (
    <label class="theme">
      <span>Colours</span>
      <select
        aria-label="Colours"
        value={theme}
        onChange={(event) => {
          const chosen = themeOf(event.currentTarget.value);
          setTheme(chosen);
          chooseTheme(chosen);
        }}
      >
        {THEMES.map((name) => (
          <option key={name} value={name} selected={theme === name}>
            {titled(name)}
          </option>
        ))}
      </select>
    </label>
  );
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" />
      <path d="M7 23V11a2 2 0 0 1 2-2h1a2 2 0 0 1 2 2v12M12 14l13-4v3.5l-13 4" />
    </svg>
  );
}

interface SignInProps {
  /** Where the operator who has just signed out can sign out of the provider too. */
  readonly left: OidcView | undefined;
  readonly onSignedIn: () => void;
}

export function SignIn({ left, onSignedIn }: SignInProps) {
  const token = useInput();
  const [oidc, setOidc] = useState<OidcView>();
  useEffect(() => {
    oidcView().then(setOidc, () => undefined);
  }, []);
  const { error, busy, run } = useAction(async () => {
    await signIn(token.value.trim());
    onSignedIn();
  });
  return (
    <main class="sign-in">
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          run();
        }}
      >
        <h1>
          <Mark /> Tollgate
        </h1>
        {left === undefined ? null : (
          <p role="status">
            You are signed out of this console, but perhaps not of {left.issuer}, which then lets you in again
            without asking. <a href={left.url}>Sign out of {left.issuer} too</a>
          </p>
        )}
        {oidc === undefined ? null : (
          <button type="button" class="primary wide" onClick={() => leaveTo(oidc.url)}>
            Sign in with {oidc.issuer}
          </button>
        )}
        <p class="muted">
          {oidc === undefined ? 'Sign' : 'Or sign'} in with your operator’s token, or with the admin token: it
          stands in <code>admin-token</code> in the gateway’s data folder, or is what{' '}
          <code>TOLLGATE_ADMIN_TOKEN</code> was set to.
        </p>
        <TextField
          label="Admin token"
          type="password"
          autocomplete="current-password"
          required
          autofocus
          {...token}
        />
        <ErrorText text={error} />
        <button type="submit" class={oidc === undefined ? 'primary wide' : 'wide'} disabled={busy}>
          {oidc === undefined ? 'Sign in' : 'Sign in with the token'}
        </button>
      </form>
    </main>
  );
}
