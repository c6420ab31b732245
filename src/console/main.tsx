/**
 * Entry of the console: the page that the admin port serves at `/`. Signed out it is the form to sign in
 * (sign-in.tsx), else one of the pages in its frame: links to the others, the gateway's state, the colours,
 * signing out. All pages share one stream of stats. Browser.
 *
 * Must hold: a page that is open stays until its operator is signed out for certain
 * (test/e2e/console.test.ts, test/e2e/console-pages.test.ts).
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
import { isSignedIn, type OidcView, signOut, whenSignedOut, may, operatorNow, useAction } from './api.js';
import {
  addressOf,
  applyTheme,
  comeBack,
  storedTheme,
  usePageAddress,
  chooseTheme,
  themeOf,
  THEMES,
} from './browser.js';
import { CallPage } from './call-page.js';
import { CallsPage } from './calls-page.js';
import { ChangesPage } from './changes-page.js';
import { Badge, Button, ErrorText, Icon, type IconName, Logo, Name, type Tone } from './controls.js';
import { duration } from './format.js';
import { GroupsPage } from './groups-page.js';
import { type Range, useLive } from './live.js';
import { OperatorsPage } from './operators-page.js';
import { OverviewPage } from './overview-page.js';
import { PlaygroundPage } from './playground-page.js';
import { SettingsPage } from './settings-page.js';
import { SignIn } from './sign-in.js';
import { UpstreamsPage } from './upstreams-page.js';
import { UsagePage } from './usage-page.js';

/** In the order of their links. The name of a page is in its address and its link, and names its icon. */
const PAGES = [
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
] as const satisfies readonly IconName[];

type PageName = (typeof PAGES)[number];

/** Pages that the operator's role cannot use are not offered. */
const isOffered = (name: PageName): boolean =>
  name === 'playground' ? may('playground') : name !== 'operators' || may('everything');

const capitalized = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1);

interface ShellProps {
  /** As the address has it: a PageName, or what somebody typed. */
  readonly page: string;
  /** The newest stats; undefined before the first have come. */
  readonly status: StatusDocument | undefined;
  /** Whether the stream of stats is open. */
  readonly connected: boolean;
  /** Rejects if the operator may still be signed in. */
  readonly onSignOut: () => Promise<void>;
  readonly children: ComponentChildren;
}

/** The frame of every page. */
function Shell({ page, status, connected, onSignOut, children }: ShellProps) {
  const nav = useRef<HTMLElement>(null);
  const { error, busy, run } = useAction(onSignOut);
  // On a phone not all links fit beside each other: the one of this page is scrolled into sight.
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
          // What follows # is the page's address (browser.ts): the link would open a page “content”.
          event.preventDefault();
          document.getElementById('content')?.focus();
        }}
      >
        Skip to the content
      </a>
      <header class="side">
        <p class="brand">
          <Logo /> Tollgate
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
          <Button class="quiet" disabled={busy} onClick={() => run()}>
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

function App() {
  /** Undefined until the gateway has said it. */
  const [signedIn, setSignedIn] = useState<boolean>();
  const [providerSignOut, setProviderSignOut] = useState<OidcView>();
  const onSignedOut = useCallback(() => setSignedIn(false), []);
  useEffect(() => {
    whenSignedOut(onSignedOut);
    // If the gateway cannot be reached, the form comes: who sends it is told so, and it works afterwards.
    isSignedIn().then(setSignedIn, onSignedOut);
  }, []);
  if (signedIn === undefined) return <p class="waiting muted">Opening the console…</p>;
  const onSignedIn = (): void => {
    setProviderSignOut(undefined);
    setSignedIn(true);
  };
  if (!signedIn) return <SignIn providerSignOut={providerSignOut} onSignedIn={onSignedIn} />;
  // If the gateway cannot be reached, the session may still be valid: `signOut` rejects, and the page stays.
  const onSignOut = async (): Promise<void> => {
    setProviderSignOut(await signOut());
    onSignedOut();
  };
  return <Console onSignOut={onSignOut} />;
}

function Console({ onSignOut }: Pick<ShellProps, 'onSignOut'>) {
  const { page, item, filters } = usePageAddress();
  const [range, setRange] = useState<Range>('5m');
  const live = useLive(range);
  const status = live.snapshots.at(-1);
  const pages: Readonly<Record<PageName, () => preact.JSX.Element>> = {
    overview: () => <OverviewPage live={live} onRange={setRange} />,
    accounts: () => <AccountsPage item={item} count={status?.accounts} />,
    groups: () => <GroupsPage item={item} />,
    // By `key` each call has a page of its own, on which nobody has asked for the contents yet.
    calls: () => (item === '' ? <CallsPage filters={filters} /> : <CallPage key={item} id={item} />),
    usage: () => <UsagePage />,
    playground: () => <PlaygroundPage />,
    upstreams: () => <UpstreamsPage snapshots={live.snapshots} />,
    settings: () => <SettingsPage />,
    changes: () => <ChangesPage filters={filters} />,
    operators: () => <OperatorsPage />,
  };
  const known = PAGES.find((name) => name === page);
  return (
    <Shell page={page} status={status} connected={live.connected} onSignOut={onSignOut}>
      {known === undefined ? <UnknownPage name={page} /> : pages[known]()}
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
// Before the address is read: who signed in at a provider comes back without the page of before in it.
comeBack();
render(<App />, document.getElementById('app')!);
