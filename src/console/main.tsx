/**
 * Entry of the console, which index.html loads and the admin port serves at `/`. Signed out, it shows the
 * form to sign in (sign-in.tsx). Signed in, it shows one of the pages within a Shell: links to the other
 * pages, the gateway's state, the colours, signing out. All pages share one stream of stats. Browser.
 *
 * Must hold: an open page stays until its operator is signed out for certain, because it may have what the
 * operator has typed (test/e2e/console.test.ts, test/e2e/console-pages.test.ts).
 */
import 'uplot/dist/uPlot.min.css';
import './style/theme.css';
import './style/layout.css';
import './style/controls.css';
import './style/accounts.css';
import './style/pages.css';
import { render, type ComponentChildren } from 'preact';
import { useCallback, useEffect, useState, useRef } from 'preact/hooks';
import type { OidcView } from '../admin/oidc.js';
import type { StatusDocument } from '../telemetry/status-document.js';
import { AccountsPage } from './accounts-page.js';
import { textOf } from './api.js';
import { useAction } from './api-hooks.js';
import { checkSession, signOut, whenSignedOut, may, operatorNow } from './session.js';
import { addressOf, type PageName, PAGES, restoreAddress, usePageAddress } from './address.js';
import { CallPage } from './call-page.js';
import { CallsPage } from './calls-page.js';
import { ChangesPage } from './changes-page.js';
import { Badge, Button, ErrorText, Icon, Logo, Name, type Tone } from './controls.js';
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
import { applyTheme, storedTheme, chooseTheme, themeOf, THEMES } from './theme.js';

/** Whether a page has a link: whether the operator's role can use the page. */
const isOffered = (name: PageName): boolean =>
  name === 'playground' ? may('playground') : name !== 'operators' || may('everything');

const capitalized = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1);

interface ShellProps {
  /** The page's name in the address: a PageName, or any text that somebody typed. */
  readonly page: string;
  /** The newest snapshot; undefined before the first has come. */
  readonly status: StatusDocument | undefined;
  /** Whether the stream of stats is open. */
  readonly isConnected: boolean;
  /** Rejects if the operator is, or may be, still signed in: with what to tell. */
  readonly onSignOut: () => Promise<void>;
  readonly children: ComponentChildren;
}

function Shell({ page, status, isConnected, onSignOut, children }: ShellProps) {
  const nav = useRef<HTMLElement>(null);
  const { error, isBusy, run } = useAction(onSignOut);
  // On a phone not all links fit beside each other, so the link of this page is scrolled into sight.
  useEffect(() => {
    const link = nav.current?.querySelector<HTMLElement>('[aria-current]');
    if (link) nav.current!.scrollLeft = link.offsetLeft - link.offsetWidth;
  }, [page]);
  return (
    <div class="shell">
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          // Prevented, because the link would open a page “content”: the text after # is a page's address.
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
          <Health status={status} isConnected={isConnected} />
          <OperatorName />
          <ThemeChoice />
          <Button class="quiet" disabled={isBusy} onClick={() => run()}>
            <Icon name="out" /> Sign out
          </Button>
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        <ErrorText text={error} />
        {children}
      </main>
    </div>
  );
}

/** Returns the tone and the text of the badge for the gateway's state, the worst first. */
function healthOf({
  status,
  isConnected,
}: Pick<ShellProps, 'status' | 'isConnected'>): readonly [Tone, string] {
  // The stream brings the first status up to two seconds after it has opened.
  if (!isConnected || status === undefined) return ['warn', 'Connecting…'];
  if (!status.store.ok) return ['bad', 'Books not written'];
  return status.ready ? ['good', 'Serving'] : ['warn', 'Draining'];
}

function Health(props: Pick<ShellProps, 'status' | 'isConnected'>) {
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

function OperatorName() {
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
  /** Whether an operator is signed in; undefined until the gateway has responded. */
  const [isSignedIn, setSignedIn] = useState<boolean>();
  const [providerSignOut, setProviderSignOut] = useState<OidcView>();
  const onSignedOut = useCallback(() => setSignedIn(false), []);
  useEffect(() => {
    whenSignedOut(onSignedOut);
    // If the gateway cannot be reached, the form is shown. Sending the form shows the error, or succeeds.
    checkSession().then(setSignedIn, onSignedOut);
  }, []);
  if (isSignedIn === undefined) return <p class="waiting muted">Opening the console…</p>;
  const onSignedIn = (): void => {
    setProviderSignOut(undefined);
    setSignedIn(true);
  };
  if (!isSignedIn) return <SignIn providerSignOut={providerSignOut} onSignedIn={onSignedIn} />;
  const onSignOut = async (): Promise<void> => {
    try {
      setProviderSignOut(await signOut());
    } catch (reason) {
      // The session may have ended all the same, if only the response was lost.
      const isStillSignedIn = await checkSession().catch(() => undefined);
      if (isStillSignedIn !== false)
        throw new Error(`You ${isStillSignedIn ? 'are' : 'may be'} still signed in. ${textOf(reason)}`);
    }
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
    // `key` gives each call a page of its own, on which nobody has asked for the contents yet.
    calls: () => (item === '' ? <CallsPage filters={filters} /> : <CallPage key={item} id={item} />),
    usage: () => <UsagePage />,
    playground: () => <PlaygroundPage />,
    upstreams: () => <UpstreamsPage snapshots={live.snapshots} />,
    settings: () => <SettingsPage />,
    changes: () => <ChangesPage filters={filters} />,
    operators: () => <OperatorsPage />,
  };
  const pageName = PAGES.find((name) => name === page);
  return (
    <Shell page={page} status={status} isConnected={live.isConnected} onSignOut={onSignOut}>
      {pageName === undefined ? <UnknownPage name={page} /> : pages[pageName]()}
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
// Before `render`, which reads the address: an operator who comes back from a provider has lost it.
restoreAddress();
render(<App />, document.getElementById('app')!);
