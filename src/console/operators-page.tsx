/**
 * The page of operators, which main.tsx shows to the role admin: who has a token for the admin interface,
 * with which role and until when. Browser.
 *
 * Must hold: an action that changes an operator asks first, and a new token is shown once
 * (test/e2e/console.test.ts; rotation: test/e2e/console-pages.test.ts).
 */
import type { CreatedOperatorView, OperatorView } from '../admin/operator-routes.js';
import type { ListView } from '../admin/views.js';
import { ROLE_MEANINGS, ROLES } from '../core/roles.js';
import { post } from './api.js';
import { useView } from './api-hooks.js';
import { addressOf } from './address.js';
import { Badge, Button, Choice, ErrorText, Icon, TextField, type Tone, useInput } from './controls.js';
import {
  type ChangeProps,
  type CreateProps,
  DeleteDialog,
  LongName,
  Question,
  SwitchDialog,
  useSecretDialog,
} from './dialogs.js';
import { moment } from './format.js';
import { Table } from './table.js';

/** How often the list is fetched again, for the last uses of tokens. */
const REFRESH_MS = 10_000;

export function OperatorsPage() {
  const { view, error, reload } = useView<ListView<OperatorView>>('/operators', REFRESH_MS);
  const { dialog, open, dialogProps, actionButton } = useSecretDialog(reload, 'operator', 'token');
  return (
    <>
      <div class="head">
        <h1>Operators</h1>
        <Button class="primary" onClick={() => open(<NewOperatorDialog {...dialogProps} />)}>
          <Icon name="plus" /> New operator
        </Button>
      </div>
      <p class="muted">
        Each has a token of their own, so that <a href={addressOf('changes')}>changes</a> tell who made them.
        The admin token of the data directory stays valid.
      </p>
      <ErrorText text={error} />
      {view === undefined ? null : view.data.length === 0 ? (
        <p class="empty">No operators yet: nobody has a token of their own.</p>
      ) : (
        <Table
          label="Operators"
          class="cards"
          rows={view.data}
          keyOf={({ id }) => id}
          columns={[
            { head: 'Name', text: ({ name }) => name },
            {
              head: 'Role',
              csvValue: ({ role }) => role,
              cell: ({ role }) => <Badge tone="plain">{role}</Badge>,
            },
            {
              head: 'State',
              csvValue: (operator) => stateOf(operator)[1],
              cell: (operator) => {
                const [tone, text] = stateOf(operator);
                return <Badge tone={tone}>{text}</Badge>;
              },
            },
            { head: 'Created', seconds: ({ created }) => created },
            { head: 'Last used', seconds: (operator) => operator.last_used, nullText: 'never' },
            {
              head: { hidden: 'Actions' },
              cell: (operator) => {
                const props = { item: operator, ...dialogProps };
                return (
                  <>
                    {actionButton(operator, 'Role', <RoleDialog {...props} />)}
                    {actionButton(operator, 'Rotate', <RotateDialog {...props} />)}
                    {actionButton(
                      operator,
                      operator.active ? 'Disable' : 'Enable',
                      <SwitchDialog noun="operator" {...props} />,
                    )}
                    {actionButton(
                      operator,
                      'Delete',
                      <DeleteDialog noun="operator" path={pathTo(operator)} {...dialogProps}>
                        The token of <LongName text={operator.name} /> is refused from now on. The changes of
                        this operator stay on record.
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
      {dialog}
    </>
  );
}

/** Returns tone and text of a badge: whether the token is accepted, and until when. */
function stateOf({ active, expired, expires }: OperatorView): readonly [Tone, string] {
  if (!active) return ['bad', 'Disabled'];
  if (expired) return ['bad', 'Expired'];
  return expires === null ? ['good', 'Active'] : ['warn', `Until ${moment(expires)}`];
}

const pathTo = ({ id }: OperatorView): string => `/operators/${encodeURIComponent(id)}`;

const ROLE_OPTIONS = ROLES.map((role) => [role, `${role}: ${ROLE_MEANINGS[role]}`] as const);

const LIFETIME_DEFAULT = '7776000';
/** Options of a Choice: how long a token lasts, as seconds and as text. */
const LIFETIMES = [
  ['86400', '1 day'],
  ['2592000', '30 days'],
  [LIFETIME_DEFAULT, '90 days'],
  ['31536000', '1 year'],
] as const;

/**
 * Returns the field of a body that says how long the token lasts; no field for ''. Then a new token never
 * expires, and a rotated one expires when the former token would.
 */
function expiryOf(lifetime: string): { readonly expires_in?: number } {
  return lifetime === '' ? {} : { expires_in: Number(lifetime) };
}

function NewOperatorDialog({ onClose, onCreated }: CreateProps<CreatedOperatorView>) {
  const name = useInput();
  const role = useInput('viewer'); // The role with the fewest rights.
  const expiresIn = useInput(LIFETIME_DEFAULT);
  const body = { name: name.value.trim(), role: role.value, ...expiryOf(expiresIn.value) };
  return (
    <Question
      title="New operator"
      verb="Make operator"
      onClose={onClose}
      act={async () => onCreated(await post<CreatedOperatorView>('/operators', body))}
    >
      <TextField label="Name" hint="Unique among operators; changes show it." required {...name} />
      <Choice label="Role" options={ROLE_OPTIONS} {...role} />
      <Choice label="The token lasts" options={[['', 'Until it is disabled'], ...LIFETIMES]} {...expiresIn} />
    </Question>
  );
}

function RoleDialog({ item, onClose, onChanged }: ChangeProps<OperatorView>) {
  const role = useInput(item.role);
  const body = { role: role.value };
  return (
    <Question
      title="Change role"
      onClose={onClose}
      act={async () => onChanged(await post<OperatorView>(`${pathTo(item)}/set-role`, body))}
    >
      <p>
        From its next request on, <LongName text={item.name} /> may do what the role may.
      </p>
      <Choice label="Role" options={ROLE_OPTIONS} {...role} />
    </Question>
  );
}

interface RotateProps extends CreateProps<CreatedOperatorView> {
  readonly item: OperatorView;
}

/** By default the new token expires when the former would, unless the former has expired. */
function RotateDialog({ item, onClose, onCreated }: RotateProps) {
  const expiresIn = useInput(item.expired ? LIFETIME_DEFAULT : '');
  const formerText =
    item.expires === null ? 'Until it is disabled' : `Until ${moment(item.expires)}, as the former one`;
  return (
    <Question
      title="Rotate token"
      verb="Make the new token"
      isHarmful
      onClose={onClose}
      act={async () =>
        onCreated(await post<CreatedOperatorView>(`${pathTo(item)}/rotate`, expiryOf(expiresIn.value)))
      }
    >
      <p>
        A new token takes the place of that of <LongName text={item.name} />, which is refused at once.
      </p>
      <Choice
        label="The new token lasts"
        options={[...(item.expired ? [] : [['', formerText] as const]), ...LIFETIMES]}
        {...expiresIn}
      />
    </Question>
  );
}
