/**
 * Entry of the console: the page that the admin port serves at `/`. Signed out it is the form to sign in,
 * else one of the pages in its frame: links to the others, the gateway's state, the colours, signing out.
 * All pages share one stream of stats. Browser.
 *
 * Must hold: the admin token is sent once and kept nowhere (test/e2e/console.test.ts,
 * test/e2e/console-oidc.test.ts).
 */
import 'uplot/dist/uPlot.min.css';
import './style/theme.css';
import './style/layout.css';
import './style/controls.css';
import './style/pages.css';
import { render, type ComponentChildren } from 'preact';
import { useCallback, useEffect, useState, useRef } from 'preact/hooks';
import type { StatusDocument } from '../telemetry/status-document.js';
import { AccountsPage } from './accounts-page.js';
import {
  isSignedIn,
  type OidcView,
  signOut,
  whenSignedOut,
  may,
  oidcView,
  operatorNow,
  signIn,
  useAction,
} from './api.js';
import {
  addressOf,
  applyTheme,
  comeBack,
  storedTheme,
  usePageAddress,
  chooseTheme,
  leaveTo,
  themeOf,
  THEMES,
} from './browser.js';
import { CallPage } from './call-page.js';
import { CallsPage } from './calls-page.js';
import { ChangesPage } from './changes-page.js';
import {
  Badge,
  Button,
  ErrorText,
  Icon,
  type IconName,
  Name,
  TextField,
  type Tone,
  useInput,
} from './controls.js';
import { duration } from './format.js';
import { GroupsPage } from './groups-page.js';
import { type Range, useLive } from './live.js';
import { OperatorsPage } from './operators-page.js';
import { OverviewPage } from './overview-page.js';
import { PlaygroundPage } from './playground-page.js';
import { SettingsPage } from './settings-page.js';
import { UpstreamsPage } from './upstreams-page.js';
import { UsagePage } from './usage-page.js';

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

/** Pages that the operator's role cannot use are not offered. */
const isOffered = (name: IconName): boolean =>
  name === 'playground' ? may('playground') : name !== 'operators' || may('everything');

const capitalized = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1);

interface ShellProps {
  readonly page: string;
  readonly status: StatusDocument | undefined;
  readonly connected: boolean;
  /** Rejects if the operator may still be signed in. */
  readonly onLeave: () => Promise<void>;
  readonly children: ComponentChildren;
}

function Shell({ page, status, connected, onLeave, children }: ShellProps) {
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
          {PAGES.filter(isOffered).map((name) => (
            <a key={name} href={addressOf(name)} aria-current={name === page ? 'page' : undefined}>
              <Icon name={name} />
              <span>{capitalized(name)}</span>
            </a>
          ))}
        </nav>
        <div class="side-end">
          <Health status={status} connected={connected} />
          <Who />
          <ThemeChoice />
          <Button class="quiet" disabled={busy} onClick={() => leave()}>
            <Icon name="out" /> Sign out
          </Button>
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
      {status !== undefined && (
        <small class="muted">
          {status.version}, up {duration(status.uptime_seconds)}
        </small>
      )}
    </div>
  );
}

/** Name and role of the operator who is signed in. */
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
            {capitalized(name)}
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
  /** Set if the operator who has just signed out had signed in at a provider. */
  readonly providerToLeave: OidcView | undefined;
  readonly onSignedIn: () => void;
}

function SignIn({ providerToLeave, onSignedIn }: SignInProps) {
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
        {providerToLeave !== undefined && (
          <p role="status">
            You are signed out of this console, but perhaps not of {providerToLeave.issuer}, which then lets
            you in again without asking.{' '}
            <a href={providerToLeave.url}>Sign out of {providerToLeave.issuer} too</a>
          </p>
        )}
        {oidc !== undefined && (
          <Button class="primary wide" onClick={() => leaveTo(oidc.url)}>
            Sign in with {oidc.issuer}
          </Button>
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

function App() {
  const [signedIn, setSignedIn] = useState<boolean>();
  const [providerToLeave, setProviderToLeave] = useState<OidcView>();
  const onSignedOut = useCallback(() => setSignedIn(false), []);
  useEffect(() => {
    whenSignedOut(onSignedOut);
    isSignedIn().then(setSignedIn, onSignedOut);
  }, []);
  if (signedIn === undefined) return <p class="waiting muted">Opening the console…</p>;
  const onSignedIn = (): void => {
    setProviderToLeave(undefined);
    setSignedIn(true);
  };
  if (!signedIn) return <SignIn providerToLeave={providerToLeave} onSignedIn={onSignedIn} />;
  // If the gateway cannot be reached, the session may still be valid, so the page stays.
  const onLeave = async (): Promise<void> => {
    setProviderToLeave(await signOut());
    onSignedOut();
  };
  return <Console onLeave={onLeave} />;
}

interface ConsoleProps {
  readonly onLeave: () => Promise<void>;
}

function Console({ onLeave }: ConsoleProps) {
  const { page, item, filters } = usePageAddress();
  const [range, setRange] = useState<Range>('5m');
  const live = useLive(range);
  const status = live.snapshots.at(-1);
  const pages: Readonly<Record<string, () => preact.JSX.Element>> = {
    overview: () => <OverviewPage live={live} onRange={setRange} />,
    accounts: () => <AccountsPage item={item} count={status?.accounts} />,
    groups: () => <GroupsPage item={item} />,
    calls: () => (item === '' ? <CallsPage filters={filters} /> : <CallPage key={item} id={item} />),
    usage: () => <UsagePage />,
    playground: () => <PlaygroundPage />,
    upstreams: () => <UpstreamsPage snapshots={live.snapshots} />,
    settings: () => <SettingsPage />,
    changes: () => <ChangesPage filters={filters} />,
    operators: () => <OperatorsPage />,
  };
  const shown = Object.hasOwn(pages, page) ? pages[page] : undefined;
  return (
    <Shell page={page} status={status} connected={live.connected} onLeave={onLeave}>
      {shown === undefined ? <UnknownPage name={page} /> : shown()}
    </Shell>
  );
}

/** For an address that somebody typed, or that another version of the console knew. */
function UnknownPage({ name }: { readonly name: string }) {
  return (
    <section>
      <h1>There is no page “{name}”</h1>
      <p>
        <a href={addressOf('overview')}>Go to the overview</a>
      </p>
    </section>
  );
}

applyTheme(storedTheme());
comeBack();
render(<App />, document.getElementById('app')!);
