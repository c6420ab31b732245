/**
 * The keys of an account, the actions on each key, and their dialogs. accounts-page.tsx shows this section, a
 * new one for each account, so that no dialog stays open. Of calls with a _private key_ the gateway keeps no
 * contents. core/roles.ts says which role has the rights `keys` and `everything`. Browser.
 *
 * Must hold: an action that changes a key asks first, and is offered only to operators whose role allows it
 * (test/e2e/console.test.ts). A new key is shown at once, by `onCreated` within `act`: nobody sees it again.
 */
import { useState } from 'preact/hooks';
import { PAGE_ITEMS_MAX } from '../admin/addresses.js';
import type { AccountView, CreatedKeyView, KeyView, ListView } from '../admin/views.js';
import { fetchRows, post, queryOf } from './api.js';
import { useView } from './api-hooks.js';
import { may } from './session.js';
import { callsAddress } from './address.js';
import { Badge, Button, Choice, ErrorText, Icon, Name, TextField, type Tone, useInput } from './controls.js';
import {
  type ChangeProps,
  type CreateProps,
  DeleteDialog,
  LongName,
  Question,
  SwitchDialog,
  useSecretDialog,
} from './dialogs.js';
import { moment, number } from './format.js';
import { KeyLimitsDialog } from './quota-dialogs.js';
import { QuotaLine } from './quotas.js';
import { Table } from './table.js';

/** How often the keys are fetched again: last uses change, and other operators may create keys. */
const REFRESH_MS = 5_000;
/** One page. Few accounts have more keys. */
const KEYS_SHOWN_MAX = PAGE_ITEMS_MAX;

export function AccountKeys({ account }: { readonly account: AccountView }) {
  const path = `/keys${queryOf({ account: account.id, limit: KEYS_SHOWN_MAX })}`;
  const { view: keyList, error, reload } = useView<ListView<KeyView>>(path, REFRESH_MS);
  const { dialog, open, dialogProps, actionButton } = useSecretDialog(reload, 'key', 'key');
  return (
    <section>
      <div class="head">
        <h3>Keys</h3>
        {may('keys') && (
          <Button onClick={() => open(<NewKeyDialog account={account} {...dialogProps} />)}>
            <Icon name="plus" /> New key
          </Button>
        )}
      </div>
      <ErrorText text={error} />
      {keyList === undefined ? null : keyList.data.length === 0 ? (
        <p class="empty">No keys yet. The account’s programs need one each.</p>
      ) : (
        <Table
          label="Keys"
          class="keys cards"
          rows={keyList.data}
          // For the CSV, which also has the keys that are not listed.
          allRows={() => fetchRows<KeyView>('/keys', { account: account.id })}
          keyOf={({ id }) => id}
          columns={[
            {
              head: 'Name',
              csvValue: ({ name }) => name,
              cell: ({ name, quotas }) => (
                <>
                  <Name text={name} />
                  <QuotaLine quotas={quotas} />
                </>
              ),
            },
            {
              head: 'Begins with',
              csvValue: ({ prefix }) => prefix,
              cell: ({ prefix }) => <code>{prefix}</code>,
            },
            {
              head: 'State',
              csvValue: (key) => stateOf(key)[1] + (key.private ? ', private' : ''),
              cell: (key) => <KeyState item={key} />,
            },
            {
              head: 'Last used',
              seconds: (key) => key.last_used,
              nullText: 'never',
              href: ({ id }) => callsAddress({ key: id }),
            },
            {
              head: { hidden: 'Actions' },
              cell: (key) => {
                const props = { item: key, ...dialogProps };
                const privacyText = key.private ? 'Not private' : 'Private';
                return (
                  <>
                    {may('keys') && actionButton(key, 'Rotate', <RotateKeyDialog {...props} />)}
                    {may('everything') && actionButton(key, 'Limits', <KeyLimitsDialog {...props} />)}
                    {may('everything') && actionButton(key, privacyText, <PrivateKeyDialog {...props} />)}
                    {may('keys') &&
                      actionButton(
                        key,
                        key.active ? 'Disable' : 'Enable',
                        <SwitchDialog noun="key" {...props} />,
                      )}
                    {may('keys') &&
                      actionButton(
                        key,
                        'Delete',
                        <DeleteDialog noun="key" path={`/keys/${key.id}`} {...dialogProps}>
                          <LongName text={key.name} /> is refused from now on and cannot be brought back. Its
                          usage stays in the books.
                        </DeleteDialog>,
                      )}
                  </>
                );
              },
              class: 'row-actions',
            },
          ]}
        />
      )}
      {typeof keyList?.next === 'string' && (
        <p class="muted">The first {number(KEYS_SHOWN_MAX)} are listed; the CSV has more.</p>
      )}
      {dialog}
    </section>
  );
}

/** The tone and the text of a key's badge: why the key is rejected, or else until when it is accepted. */
function stateOf({ active, expired, expires, replaced_by: replacedBy }: KeyView): readonly [Tone, string] {
  if (expired) return ['bad', 'Expired'];
  if (!active) return ['bad', 'Disabled'];
  const expiryText = expires === null ? undefined : moment(expires);
  if (replacedBy !== null)
    return ['warn', expiryText === undefined ? 'Replaced' : `Replaced, until ${expiryText}`];
  return expiryText === undefined ? ['good', 'Active'] : ['warn', `Until ${expiryText}`];
}

/** The key is passed as `item`, because Preact does not pass a property `key` to a component. */
function KeyState({ item }: { readonly item: KeyView }) {
  const [tone, text] = stateOf(item);
  return (
    <>
      <Badge tone={tone}>{text}</Badge>
      {item.private ? <Badge tone="plain">Private</Badge> : null}
    </>
  );
}

interface NewKeyProps extends CreateProps<CreatedKeyView> {
  readonly account: AccountView;
}

function NewKeyDialog({ account, onClose, onCreated }: NewKeyProps) {
  const name = useInput();
  const expiresIn = useInput();
  const expiry = expiresIn.value === '' ? {} : { expires_in: Number(expiresIn.value) };
  const [isPrivate, setPrivate] = useState(false);
  const body = { account: account.id, name: name.value, private: isPrivate, ...expiry };
  return (
    <Question
      title="New key"
      verb="Make key"
      onClose={onClose}
      act={async () => onCreated(await post<CreatedKeyView>('/keys', body))}
    >
      <p>
        For <LongName text={account.name} />, whose limits and balance it shares.
      </p>
      <TextField
        label="Name"
        hint="What the key is for; no other key of the account has it."
        required
        {...name}
      />
      <Choice
        label="Lasts"
        options={[
          ['', 'Until it is disabled'],
          ['86400', '1 day'],
          ['2592000', '30 days'],
          ['31536000', '1 year'],
        ]}
        {...expiresIn}
      />
      <label class="check">
        <input type="checkbox" checked={isPrivate} onChange={() => setPrivate(!isPrivate)} />
        Private: no contents of its calls are kept
      </label>
    </Question>
  );
}

interface RotateKeyProps extends CreateProps<CreatedKeyView> {
  readonly item: KeyView;
}

function RotateKeyDialog({ item, onClose, onCreated }: RotateKeyProps) {
  const grace = useInput('3600');
  const body = { grace: Number(grace.value) };
  return (
    <Question
      title="Rotate key"
      verb="Make the new key"
      onClose={onClose}
      act={async () => onCreated(await post<CreatedKeyView>(`/keys/${item.id}/rotate`, body))}
    >
      <p>
        A new key takes the place of <LongName text={item.name} />. The old key is accepted for the time
        chosen here; if it has leaked, choose no time.
      </p>
      <Choice
        label="The old key is still accepted for"
        options={[
          ['0', 'no time: it is refused at once'],
          ['3600', '1 hour'],
          ['86400', '1 day'],
          ['604800', '7 days'],
        ]}
        {...grace}
      />
    </Question>
  );
}

/** Makes a private key not private, and any other key private. */
function PrivateKeyDialog({ item, onClose, onChanged }: ChangeProps<KeyView>) {
  const body = { private: !item.private };
  return (
    <Question
      title={item.private ? 'Key not private' : 'Private key'}
      onClose={onClose}
      act={async () => onChanged(await post<KeyView>(`/keys/${item.id}/set-private`, body))}
    >
      <p>
        {item.private
          ? 'Contents of calls with this key may be kept from now on, if the settings keep any: '
          : 'No contents of calls with this key are kept from now on; what is kept of earlier ones goes when its hours are over: '}
        <LongName text={item.name} />.
      </p>
    </Question>
  );
}
