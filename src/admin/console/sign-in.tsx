/**
 * Signing in with the admin token. Browser; the token is sent once and kept nowhere.
 */
import { useState } from 'preact/hooks';
import { signIn, wordsOf } from './api.js';
import { Problem, TextField } from './controls.js';
import { Mark } from './shell.js';

export function SignIn({ onSignedIn }: { readonly onSignedIn: () => void }) {
  const [token, setToken] = useState('');
  const [problem, setProblem] = useState<string>();
  const [busy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    setProblem(undefined);
    try {
      await signIn(token.trim());
      onSignedIn();
    } catch (error) {
      setProblem(wordsOf(error));
      setBusy(false);
    }
  };
  return (
    <main class="sign-in">
      <form
        class="card"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
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
        <Problem text={problem} />
        <button type="submit" class="primary wide" disabled={busy}>
          Sign in
        </button>
      </form>
    </main>
  );
}
