/**
 * The keys of an account. Browser.
 */
import { useState } from 'preact/hooks';
import { queryOf } from './api.js';
import { Badge, Name, ErrorText } from './controls.js';
import { ago, moment } from './format.js';
import { Icon } from './icons.js';
import {
  DeleteKeyDialog,
  KeyStatusDialog,
  NewKeyDialog,
  RotateKeyDialog,
  ShownKeyDialog,
} from './key-dialogs.js';
import { usePolled } from './live.js';
import { Table } from './table.js';
import type { Account, CreatedKey, Key, List } from './views.js';

/** Last uses are written with each flush; a key that was made elsewhere appears as well. */
const REFRESH_MS = 5_000;
/** Nobody gives one account more; further ones are reached by the command. */
const KEYS_SHOWN_MAX = 1_000;

type Question =
  | { readonly kind: 'new' }
  | { readonly kind: 'rotate' | 'standing' | 'delete'; readonly key: Key }
  | { readonly kind: 'shown'; readonly key: CreatedKey };

export function KeyTable({ account }: { readonly account: Account }) {
  const place = `/keys${queryOf({ account: account.id, limit: KEYS_SHOWN_MAX })}`;
  const { answer, problem: error, reload } = usePolled<List<Key>>(place, REFRESH_MS);
  const keys = answer?.data;
  const [question, setQuestion] = useState<Question>();

  const close = (): void => setQuestion(undefined);
  const changed = (): void => {
    close();
    reload();
  };
  const made = (key: CreatedKey): void => {
    setQuestion({ kind: 'shown', key });
    reload();
  };
  return (
    <section>
      <div class="head">
        <h3>Keys</h3>
        <button type="button" onClick={() => setQuestion({ kind: 'new' })}>
          <Icon name="plus" /> New key
        </button>
      </div>
      <ErrorText text={error} />
      {keys === undefined ? null : keys.length === 0 ? (
        <p class="empty">No keys yet. The account’s programs need one each.</p>
      ) : (
        <Table
          label="Keys"
          class="keys"
          columns={['Name', 'Begins with', 'State', 'Last used', { text: 'Actions', hidden: true }]}
        >
          {keys.map((key) => (
            <tr key={key.id}>
              <th scope="row">
                <Name text={key.name} />
              </th>
              <td>
                <code>{key.prefix}</code>
              </td>
              <td>
                <KeyState apiKey={key} />
              </td>
              <td title={key.last_used === null ? undefined : moment(key.last_used)}>
                {key.last_used === null ? 'never' : ago(key.last_used, Date.now())}
              </td>
              <td class="row-actions">
                <KeyAction text="Rotate" of={key} onClick={() => setQuestion({ kind: 'rotate', key })} />
                <KeyAction
                  text={key.active ? 'Disable' : 'Enable'}
                  of={key}
                  onClick={() => setQuestion({ kind: 'standing', key })}
                />
                <KeyAction text="Delete" of={key} onClick={() => setQuestion({ kind: 'delete', key })} />
              </td>
            </tr>
          ))}
        </Table>
      )}
      {question?.kind === 'new' ? <NewKeyDialog account={account} onClose={close} onMade={made} /> : null}
      {question?.kind === 'rotate' ? (
        <RotateKeyDialog apiKey={question.key} onClose={close} onMade={made} />
      ) : null}
      {question?.kind === 'standing' ? (
        <KeyStatusDialog apiKey={question.key} onClose={close} onChanged={changed} />
      ) : null}
      {question?.kind === 'delete' ? (
        <DeleteKeyDialog apiKey={question.key} onClose={close} onChanged={changed} />
      ) : null}
      {question?.kind === 'shown' ? <ShownKeyDialog created={question.key} onClose={close} /> : null}
    </section>
  );
}

function KeyAction({
  text,
  of,
  onClick,
}: {
  readonly text: string;
  readonly of: Key;
  readonly onClick: () => void;
}) {
  return (
    <button type="button" class="quiet" aria-label={`${text} key ${of.name}`} onClick={onClick}>
      {text}
    </button>
  );
}

function KeyState({ apiKey }: { readonly apiKey: Key }) {
  if (!apiKey.active) return <Badge tone="bad">Disabled</Badge>;
  if (apiKey.expired) return <Badge tone="bad">Expired</Badge>;
  if (apiKey.replaced_by !== null) return <Badge tone="warn">Replaced</Badge>;
  if (apiKey.expires !== null) return <Badge tone="warn">Until {moment(apiKey.expires)}</Badge>;
  return <Badge tone="good">Active</Badge>;
}
