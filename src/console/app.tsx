/**
 * The console as a whole: signed out, or one of its pages. Browser.
 */
import { useCallback, useEffect, useState } from 'preact/hooks';
import { isSignedIn, signOut, whenSignedOut } from './api.js';
import { AccountsPage } from './accounts-page.js';
import { useLive } from './live.js';
import { OverviewPage } from './overview-page.js';
import { PlaygroundPage } from './playground-page.js';
import { addressOf, usePageAddress } from './route.js';
import { SettingsPage } from './settings-page.js';
import { Shell } from './shell.js';
import { SignIn } from './sign-in.js';
import { UpstreamsPage } from './upstreams-page.js';
import { UsagePage } from './usage-page.js';
import type { Range } from './views.js';

export function App() {
  const [signedIn, setSignedIn] = useState<boolean>();
  const signedOut = useCallback(() => setSignedIn(false), []);
  useEffect(() => {
    whenSignedOut(signedOut);
    isSignedIn().then(setSignedIn, signedOut);
  }, []);
  if (signedIn === undefined) return <p class="waiting muted">Opening the console…</p>;
  if (!signedIn) return <SignIn onSignedIn={() => setSignedIn(true)} />;
  const leave = (): void => void signOut().finally(signedOut);
  return <Console onSignedOut={signedOut} onLeave={leave} />;
}

/** An address that somebody typed, or of another version of the console. */
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

function Console({
  onSignedOut,
  onLeave,
}: {
  readonly onSignedOut: () => void;
  readonly onLeave: () => void;
}) {
  const { page, item } = usePageAddress();
  const [range, setRange] = useState<Range>('5m');
  const live = useLive(range, onSignedOut);
  const status = live.pictures.at(-1);
  return (
    <Shell page={page} status={status} connected={live.connected} onLeave={onLeave}>
      {page === 'accounts' ? (
        <AccountsPage item={item} count={status?.accounts} />
      ) : page === 'usage' ? (
        <UsagePage />
      ) : page === 'playground' ? (
        <PlaygroundPage />
      ) : page === 'upstreams' ? (
        <UpstreamsPage pictures={live.pictures} />
      ) : page === 'settings' ? (
        <SettingsPage />
      ) : page === 'overview' ? (
        <OverviewPage live={live} onRange={setRange} />
      ) : (
        <UnknownPage name={page} />
      )}
    </Shell>
  );
}
