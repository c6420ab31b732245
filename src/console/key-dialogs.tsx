/**
 * What can be done with keys, each with its question; and a new key, shown this once. Browser.
 */
import { useState } from 'preact/hooks';
import { post, remove } from './api.js';
import { Choice, CopyButton, TextField } from './controls.js';
import { Dialog, FormDialog, type Closable } from './dialog.js';
import type { Account, CreatedKey, Key } from './views.js';

export function NewKeyDialog({
  account,
  onClose,
  onMade,
}: Closable & { readonly account: Account; readonly onMade: (key: CreatedKey) => void }) {
  const [name, setName] = useState('');
  const [expiresIn, setExpiresIn] = useState('');
  return (
    <FormDialog
      title="New key"
      verb="Make key"
      onClose={onClose}
      onSubmit={async () =>
        onMade(
          await post<CreatedKey>('/keys', {
            account: account.id,
            name,
            ...(expiresIn === '' ? {} : { expires_in: Number(expiresIn) }),
          }),
        )
      }
    >
      <p>
        For <bdi class="long-name">{account.name}</bdi>, whose limits and balance it shares.
      </p>
      <TextField
        label="Name"
        hint="What the key is for; no other key of the account has it."
        required
        value={name}
        onText={setName}
      />
      <Choice
        label="Lasts"
        value={expiresIn}
        options={[
          ['', 'Until it is disabled'],
          ['86400', '1 day'],
          ['2592000', '30 days'],
          ['31536000', '1 year'],
        ]}
        onChoice={setExpiresIn}
      />
    </FormDialog>
  );
}

export function RotateKeyDialog({
  apiKey,
  onClose,
  onMade,
}: Closable & { readonly apiKey: Key; readonly onMade: (key: CreatedKey) => void }) {
  const [grace, setGrace] = useState('3600');
  return (
    <FormDialog
      title="Rotate key"
      verb="Make the new key"
      onClose={onClose}
      onSubmit={async () =>
        onMade(await post<CreatedKey>(`/keys/${apiKey.id}/rotate`, { grace: Number(grace) }))
      }
    >
      <p>
        A new key takes the place of <bdi class="long-name">{apiKey.name}</bdi>. The former one works on for
        the time chosen here; if it has leaked, choose no time.
      </p>
      <Choice
        label="The former key is still taken for"
        value={grace}
        options={[
          ['0', 'no time: it is refused at once'],
          ['3600', '1 hour'],
          ['86400', '1 day'],
          ['604800', '7 days'],
        ]}
        onChoice={setGrace}
      />
    </FormDialog>
  );
}

interface KeyDialogProps extends Closable {
  readonly apiKey: Key;
  readonly onChanged: () => void;
}

export function KeyStatusDialog({ apiKey, onClose, onChanged }: KeyDialogProps) {
  const { active, id, name } = apiKey;
  return (
    <FormDialog
      title={active ? 'Disable key' : 'Enable key'}
      verb={active ? 'Disable' : 'Enable'}
      harmful={active}
      onClose={onClose}
      onSubmit={async () => {
        await post<Key>(`/keys/${id}/${active ? 'disable' : 'enable'}`);
        onChanged();
      }}
    >
      <p>
        <bdi class="long-name">{name}</bdi> {active ? 'is refused from now on.' : 'is taken again.'}
      </p>
    </FormDialog>
  );
}

export function DeleteKeyDialog({ apiKey, onClose, onChanged }: KeyDialogProps) {
  return (
    <FormDialog
      title="Delete key"
      verb="Delete for good"
      harmful
      onClose={onClose}
      onSubmit={async () => {
        await remove(`/keys/${apiKey.id}`);
        onChanged();
      }}
    >
      <p>
        <bdi class="long-name">{apiKey.name}</bdi> is refused from now on and cannot be brought back. Its
        usage stays in the books.
      </p>
    </FormDialog>
  );
}

export function ShownKeyDialog({ created, onClose }: Closable & { readonly created: CreatedKey }) {
  return (
    <Dialog title="The new key" onClose={onClose}>
      <p class="notice warn">It is shown this once. Only its digest is kept: nobody can look it up later.</p>
      <p class="secret">
        <code data-testid="new-key">{created.key}</code>
        <CopyButton text={created.key} what="the key" />
      </p>
      <div class="actions">
        <button type="button" class="primary" onClick={onClose}>
          I have it
        </button>
      </div>
    </Dialog>
  );
}
