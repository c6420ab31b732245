/**
 * The dialogs by which an operator makes and changes groups, moves an account to another group, and changes
 * the limits of a group or a key: forms that post to the admin interface. accounts-page.tsx, account-keys.tsx
 * and groups-page.tsx open them. A dialog asks before it acts (`Question`). Browser.
 *
 * Must hold, of `useLimits`: only limits that were changed are sent, or two operators would undo each other's
 * changes. A field that was emptied removes its limit (test/e2e/console-groups.test.ts).
 */
import { useState } from 'preact/hooks';
import type { AccountView, GroupView, KeyView, ListView, QuotasView } from '../admin/views.js';
import { QUOTA_NAMES, type QuotaName } from '../core/quotas.js';
import { post, queryOf } from './api.js';
import { useView } from './api-hooks.js';
import { Choice, ErrorText, TextField, useInput } from './controls.js';
import { type ChangeProps, type Closable, LongName, Question } from './dialogs.js';
import { isMoneyQuota, quotaTitle } from './quotas.js';

/**
 * How many groups a choice offers: one page of the gateway, which rejects more (PAGE_ITEMS_MAX of
 * admin/fields.ts). To reach another group, an operator opens the group's page and adds the account there.
 */
const GROUPS_OFFERED_MAX = 1_000;

/** Returns the group's path below `/admin/v1`. groups-page.tsx uses it too. */
export const pathTo = (group: GroupView): string => `/groups/${encodeURIComponent(group.id)}`;

/** By quota: the text of the field for its limit; empty for no limit. */
type LimitTexts = Readonly<Record<QuotaName, string>>;

interface LimitsInput {
  readonly texts: LimitTexts;
  readonly setTexts: (texts: LimitTexts) => void;
  /** Fields of a request's body: the changed limits; null removes a limit. The gateway checks the numbers. */
  readonly body: Readonly<Record<string, number | string | null>>;
}

/** The limits that an operator edits. `quotas`: those in force when the dialog opens; {} for a new group. */
function useLimits(quotas: QuotasView = {}): LimitsInput {
  const [initial] = useState(() => {
    const entries = QUOTA_NAMES.map((quota) => [quota, String(quotas[quota]?.limit ?? '')]);
    return Object.fromEntries(entries) as LimitTexts;
  });
  const [texts, setTexts] = useState(initial);
  const changed = QUOTA_NAMES.filter((quota) => texts[quota].trim() !== initial[quota]);
  // A number field with another text reads as '', but browsers do not submit it. Money is sent as text.
  const valueOf = (quota: QuotaName): number | string | null => {
    const text = texts[quota].trim();
    return text === '' ? null : isMoneyQuota(quota) ? text : Number(text);
  };
  return { texts, setTexts, body: Object.fromEntries(changed.map((quota) => [quota, valueOf(quota)])) };
}

function LimitFields({ limits: { texts, setTexts } }: { readonly limits: LimitsInput }) {
  return (
    <fieldset class="limits">
      <legend class="muted">Limits. Leave a field empty for no limit.</legend>
      <div class="pair">
        {QUOTA_NAMES.map((quota) => (
          <TextField
            key={quota}
            label={quotaTitle(quota)}
            {...(isMoneyQuota(quota)
              ? { inputMode: 'decimal' as const }
              : { type: 'number' as const, min: '1' })}
            value={texts[quota]}
            onValue={(text) => setTexts({ ...texts, [quota]: text })}
          />
        ))}
      </div>
    </fieldset>
  );
}

interface NewGroupProps extends Closable {
  /** Undefined for a group at the top. */
  readonly parent: GroupView | undefined;
  readonly onCreated: (group: GroupView) => void;
}

export function NewGroupDialog({ parent, onClose, onCreated }: NewGroupProps) {
  const name = useInput();
  const limits = useLimits();
  const body = { name: name.value, ...(parent && { parent: parent.id }), ...limits.body };
  return (
    <Question
      title={parent === undefined ? 'New group' : 'New group in this one'}
      verb="Create group"
      onClose={onClose}
      act={async () => onCreated(await post<GroupView>('/groups', body))}
    >
      {parent !== undefined && (
        <p>
          In <LongName text={parent.path.join(' / ')} />, whose limits hold for it too. It stays there.
        </p>
      )}
      <TextField label="Name" hint="Unique among groups; it cannot be changed later." required {...name} />
      <LimitFields limits={limits} />
    </Question>
  );
}

export function GroupLimitsDialog({ item, onClose, onChanged }: ChangeProps<GroupView>) {
  const limits = useLimits(item.quotas);
  return (
    <Question
      title="Change limits"
      onClose={onClose}
      act={async () => onChanged(await post<GroupView>(`${pathTo(item)}/set-limits`, limits.body))}
    >
      <p>
        For all accounts in <LongName text={item.name} /> together. What was used stays used.
      </p>
      <LimitFields limits={limits} />
    </Question>
  );
}

export function KeyLimitsDialog({ item, onClose, onChanged }: ChangeProps<KeyView>) {
  const limits = useLimits(item.quotas);
  return (
    <Question
      title="Limits of the key"
      verb="Change limits"
      onClose={onClose}
      act={async () => onChanged(await post<KeyView>(`/keys/${item.id}/set-limits`, limits.body))}
    >
      <p>
        For <LongName text={item.name} />, within what its account may use. What was used stays used.
      </p>
      <LimitFields limits={limits} />
    </Question>
  );
}

/** `account`: id or name. `group`: null for no group. */
const moveAccount = (account: string, group: string | null): Promise<AccountView> =>
  post<AccountView>(`/accounts/${encodeURIComponent(account)}/set-group`, { group });

/** The first groups of the tree as options of a Choice: id and path. accounts-page.tsx uses them too. */
export function useGroupOptions() {
  const path = `/group-tree${queryOf({ limit: GROUPS_OFFERED_MAX })}`;
  const { view, error } = useView<ListView<GroupView>>(path);
  return { options: (view?.data ?? []).map((group) => [group.id, group.path.join(' / ')] as const), error };
}

export function AccountGroupDialog({ item: account, onClose, onChanged }: ChangeProps<AccountView>) {
  const { options, error } = useGroupOptions();
  const group = useInput(account.group ?? '');
  // The group of the account may not be among `options`, or these have not come yet.
  const isMissing = account.group !== null && !options.some(([id]) => id === account.group);
  const currentOption = isMissing ? [[account.group, account.group_name ?? account.group] as const] : [];
  return (
    <Question
      title="Change group"
      onClose={onClose}
      act={async () => onChanged(await moveAccount(account.id, group.value === '' ? null : group.value))}
    >
      <p>
        <LongName text={account.name} /> shares the limits of its group and of those above it. What it has
        used stays with the former group.
      </p>
      <ErrorText text={error} />
      <Choice label="Group" options={[['', 'None'], ...currentOption, ...options]} {...group} />
    </Question>
  );
}

interface AddAccountProps extends Closable {
  readonly group: GroupView;
  readonly onChanged: () => void;
}

export function AddAccountDialog({ group, onClose, onChanged }: AddAccountProps) {
  const account = useInput();
  return (
    <Question
      title="Put an account in this group"
      verb="Put it here"
      onClose={onClose}
      act={async () => {
        await moveAccount(account.value.trim(), group.id);
        onChanged();
      }}
    >
      <p>
        It leaves the group that it is in, and shares the limits of <LongName text={group.name} />.
      </p>
      <TextField label="Account" hint="Its name or id." required {...account} />
    </Question>
  );
}
