/**
 * Signing in with the admin token. Browser; the token is sent once and kept nowhere.
 */
import { useState } from 'preact/hooks';
import { signIn } from './api.js';
import { ErrorText, TextField } from './controls.js';
import { Mark } from './shell.js';
import { useSubmission } from './submission.js';

export function SignIn({ onSignedIn }: { readonly onSignedIn: () => void }) {
  const [token, setToken] = useState('');
  const {
    problem: error,
    busy,
    onSubmit,
  } = useSubmission(async () => {
    await signIn(token.trim());
    onSignedIn();
  });
  return (
    <main class="sign-in">
      <form class="card" onSubmit={onSubmit}>
        <h1>
          <Mark /> Tollgate
        </h1>
        <p class="muted">
          Sign in with the admin token: it stands in <code>admin-token</code> in the gateway’s data folder, or
          is what <code>TOLLGATE_ADMIN_TOKEN</code> was set to.
        </p>
        <TextField
          label="Admin token"
          type="password"
          autocomplete="current-password"
          required
          autofocus
          value={token}
          onText={setToken}
        />
        <ErrorText text={error} />
        <button type="submit" class="primary wide" disabled={busy}>
          Sign in
        </button>
      </form>
    </main>
  );
}
