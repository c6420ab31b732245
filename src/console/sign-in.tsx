/**
 * The form to sign in to the console: by a token, or at an OpenID Connect provider if the settings name one.
 * main.tsx shows the form while nobody is signed in. Browser.
 *
 * Must hold: the token is sent once and stored nowhere (test/e2e/console.test.ts,
 * test/e2e/console-oidc.test.ts).
 */
import { useEffect, useState } from 'preact/hooks';
import { type OidcView, oidcView, signIn, useAction } from './api.js';
import { leaveTo } from './browser.js';
import { Button, ErrorText, Logo, TextField, useInput } from './controls.js';

interface SignInProps {
  /** The provider, if an operator has just signed out here who had signed in there; else undefined. */
  readonly providerSignOut: OidcView | undefined;
  readonly onSignedIn: () => void;
}

export function SignIn({ providerSignOut, onSignedIn }: SignInProps) {
  const token = useInput();
  const [oidc, setOidc] = useState<OidcView>();
  useEffect(() => {
    // If the request fails, the form offers only the token. Sending the token then shows the error.
    oidcView().then(setOidc, () => undefined);
  }, []);
  const { error, isBusy, run } = useAction(async () => {
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
          <Logo /> Tollgate
        </h1>
        {providerSignOut !== undefined && (
          <p role="status">
            You are signed out of this console, but perhaps not of {providerSignOut.issuer}, which then lets
            you in again without asking.{' '}
            <a href={providerSignOut.url}>Sign out of {providerSignOut.issuer} too</a>
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
        {/* An operator's token goes into the same field: the gateway tells the two apart. */}
        <TextField
          label="Admin token"
          type="password"
          autocomplete="current-password"
          required
          autofocus
          {...token}
        />
        <ErrorText text={error} />
        <button type="submit" class={oidc === undefined ? 'primary wide' : 'wide'} disabled={isBusy}>
          {oidc === undefined ? 'Sign in' : 'Sign in with the token'}
        </button>
      </form>
    </main>
  );
}
