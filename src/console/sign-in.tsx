/**
 * The form to sign in to the console: by a token, or at an OpenID Connect provider if the settings name one.
 * main.tsx shows the form while nobody is signed in. Browser.
 *
 * Must hold: the token is sent once and stored nowhere (test/e2e/console.test.ts,
 * test/e2e/console-oidc.test.ts).
 */
import { SESSION_PATH } from '../admin/addresses.js';
import type { OidcView } from '../admin/oidc.js';
import { useAction, useRead } from './api-hooks.js';
import { fetchProvider, signIn } from './session.js';
import { leaveTo } from './address.js';
import { Button, ErrorText, Logo, TextField, useInput } from './controls.js';

interface SignInProps {
  /** The provider, if an operator has just signed out here who had signed in there; else undefined. */
  readonly providerSignOut: OidcView | undefined;
  readonly onSignedIn: () => void;
}

export function SignIn({ providerSignOut, onSignedIn }: SignInProps) {
  const token = useInput();
  // While the request fails, the form offers only the token. Sending the token then shows the error.
  const { view: provider } = useRead(SESSION_PATH, fetchProvider);
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
        {provider !== undefined && (
          <Button class="primary wide" onClick={() => leaveTo(provider.url)}>
            Sign in with {provider.issuer}
          </Button>
        )}
        <p class="muted">
          {provider === undefined ? 'Sign' : 'Or sign'} in with your operator’s token, or with the admin
          token: it stands in <code>admin-token</code> in the gateway’s data folder, or is what{' '}
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
        <button type="submit" class={provider === undefined ? 'primary wide' : 'wide'} disabled={isBusy}>
          {provider === undefined ? 'Sign in' : 'Sign in with the token'}
        </button>
      </form>
    </main>
  );
}
