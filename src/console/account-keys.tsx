/**
 * The keys of an account, and the actions on each. accounts-page.tsx shows it. Browser.
 *
 * Must hold: an action that changes a key asks first, and is offered only to operators whose role allows it
 * (test/e2e/console.test.ts).
 */
import { useState } from 'preact/hooks';
import type { AccountView, CreatedKeyView, KeyView, ListView } from '../admin/views.js';
import { allOf, may, queryOf, useView } from './api.js';
import { callsAddress } from './browser.js';
import { Badge, Button, ErrorText, Icon, Name, type Tone } from './controls.js';
import {
  DeleteDialog,
  LongName,
  NewKeyDialog,
  PrivateKeyDialog,
  RotateKeyDialog,
  ShownSecretDialog,
  SwitchDialog,
} from './dialogs.js';
import { moment } from './format.js';
import { KeyLimitsDialog } from './quota-dialogs.js';
import { QuotaLine } from './quotas.js';
import { Table } from './table.js';

/** Period of a new request, because last uses change, and other operators may make keys. */
const REFRESH_MS = 5_000;
/** Accounts in use have fewer keys. `tollgate keys list` lists further ones. */
const KEYS_SHOWN_MAX = 1_000;

type Question =
  | { readonly kind: 'new' }
  | { readonly kind: 'rotate' | 'limits' | 'private' | 'switch' | 'delete'; readonly key: KeyView }
  | { readonly kind: 'shown'; readonly key: CreatedKeyView };

export function AccountKeys({ account }: { readonly account: AccountView }) {
  const path = `/keys${queryOf({ account: account.id, limit: KEYS_SHOWN_MAX })}`;
  const { view, error, reload } = useView<ListView<KeyView>>(path, REFRESH_MS);
  const [question, setQuestion] = useState<Question>();
  const onClose = (): void => setQuestion(undefined);
  const answering = {
    onClose,
    onChanged: (): void => {
      onClose();
      reload();
    },
    onMade: (key: CreatedKeyView): void => {
      setQuestion({ kind: 'shown', key });
      reload();
    },
  };
  const action = (key: KeyView, text: string, kind: Exclude<Question['kind'], 'new' | 'shown'>) => (
    <Button class="quiet" aria-label={`${text} key ${key.name}`} onClick={() => setQuestion({ kind, key })}>
      {text}
    </Button>
  );
  return (
    <section>
      <div class="head">
        <h3>Keys</h3>
        {may('keys') ? (
          <Button onClick={() => setQuestion({ kind: 'new' })}>
            <Icon name="plus" /> New key
          </Button>
        ) : null}
      </div>
      <ErrorText text={error} />
      {view === undefined ? null : view.data.length === 0 ? (
        <p class="empty">No keys yet. The account’s programs need one each.</p>
      ) : (
        <Table
          label="Keys"
          class="keys cards"
          rows={view.data}
          all={() => allOf<KeyView>('/keys', { account: account.id })}
          keyOf={({ id }) => id}
          columns={[
            {
              head: 'Name',
              value: ({ name }) => name,
              cell: ({ name, quotas }) => (
                <>
                  <Name text={name} />
                  <QuotaLine quotas={quotas} />
                </>
              ),
            },
            {
              head: 'Begins with',
              value: ({ prefix }) => prefix,
              cell: ({ prefix }) => <code>{prefix}</code>,
            },
            {
              head: 'State',
              value: (key) => stateOf(key)[1] + (key.private ? ', private' : ''),
              cell: (key) => <KeyState item={key} />,
            },
            {
              head: 'Last used',
              at: (key) => key.last_used,
              none: 'never',
              href: ({ id }) => callsAddress({ key: id }),
            },
            {
              head: { hidden: 'Actions' },
              cell: (key) => (
                <>
                  {may('keys') ? action(key, 'Rotate', 'rotate') : null}
                  {may('everything') ? action(key, 'Limits', 'limits') : null}
                  {may('everything') ? action(key, key.private ? 'Not private' : 'Private', 'private') : null}
                  {may('keys') ? action(key, key.active ? 'Disable' : 'Enable', 'switch') : null}
                  {may('keys') ? action(key, 'Delete', 'delete') : null}
                </>
              ),
              class: 'row-actions',
            },
          ]}
        />
      )}
      {question?.kind === 'new' ? <NewKeyDialog account={account} {...answering} /> : null}
      {question?.kind === 'rotate' ? <RotateKeyDialog item={question.key} {...answering} /> : null}
      {question?.kind === 'limits' ? <KeyLimitsDialog item={question.key} {...answering} /> : null}
      {question?.kind === 'private' ? <PrivateKeyDialog item={question.key} {...answering} /> : null}
      {question?.kind === 'switch' ? <SwitchDialog what="key" item={question.key} {...answering} /> : null}
      {question?.kind === 'delete' ? (
        <DeleteDialog what="key" path={`/keys/${question.key.id}`} {...answering}>
          <LongName text={question.key.name} /> is refused from now on and cannot be brought back. Its usage
          stays in the books.
        </DeleteDialog>
      ) : null}
      {question?.kind === 'shown' ? (
        <ShownSecretDialog title="The new key" what="key" secret={question.key.key} onClose={onClose} />
      ) : null}
    </section>
  );
}

function stateOf(item: KeyView): readonly [Tone, string] {
  if (!item.active) return ['bad', 'Disabled'];
  if (item.expired) return ['bad', 'Expired'];
  if (item.replaced_by !== null) return ['warn', 'Replaced'];
  return item.expires === null ? ['good', 'Active'] : ['warn', `Until ${moment(item.expires)}`];
}

function KeyState({ item }: { readonly item: KeyView }) {
  const [tone, text] = stateOf(item);
  return (
    <>
      <Badge tone={tone}>{text}</Badge>
      {item.private ? <Badge tone="plain">Private</Badge> : null}
    </>
  );
}
