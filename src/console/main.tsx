/**
 * Entry of the console: the page that the admin port serves at `/`. Signed out it is the form of the token,
 * else one of the pages, all of which share one stream of stats. Browser (test/e2e/console.test.ts).
 */
import { render } from 'preact';
import { useCallback, useEffect, useState } from 'preact/hooks';
import 'uplot/dist/uPlot.min.css';
import './style/theme.css';
import './style/layout.css';
import './style/controls.css';
import './style/pages.css';
import { AccountsPage } from './accounts-page.js';
import { isSignedIn, type OidcView, signOut, whenSignedOut } from './api.js';
import { addressOf, applyTheme, comeBack, storedTheme, usePageAddress } from './browser.js';
import { CallPage } from './call-page.js';
import { CallsPage } from './calls-page.js';
import { ChangesPage } from './changes-page.js';
import { GroupsPage } from './groups-page.js';
import { type Range, useLive } from './live.js';
import { OperatorsPage } from './operators-page.js';
import { OverviewPage } from './overview-page.js';
import { PlaygroundPage } from './playground-page.js';
import { SettingsPage } from './settings-page.js';
import { Shell, SignIn } from './shell.js';
import { UpstreamsPage } from './upstreams-page.js';
import { UsagePage } from './usage-page.js';

function App() {
  const [signedIn, setSignedIn] = useState<boolean>();
  const [left, setLeft] = useState<OidcView>();
  const onSignedOut = useCallback(() => setSignedIn(false), []);
  useEffect(() => {
    whenSignedOut(onSignedOut);
    isSignedIn().then(setSignedIn, onSignedOut);
  }, []);
  if (signedIn === undefined) return <p class="waiting muted">Opening the console…</p>;
  const onSignedIn = (): void => {
    setLeft(undefined);
    setSignedIn(true);
  };
  if (!signedIn) return <SignIn left={left} onSignedIn={onSignedIn} />;
  // If the gateway cannot be reached, the session may still be valid, so the page stays.
  const onLeave = async (): Promise<void> => {
    setLeft(await signOut());
    onSignedOut();
  };
  return <Console onSignedOut={onSignedOut} onLeave={onLeave} />;
}

interface ConsoleProps {
  readonly onSignedOut: () => void;
  readonly onLeave: () => Promise<void>;
}

function Console({ onSignedOut, onLeave }: ConsoleProps) {
  const { page, item, filters } = usePageAddress();
  const [range, setRange] = useState<Range>('5m');
  const live = useLive(range, onSignedOut);
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
