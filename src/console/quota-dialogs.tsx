/**
 * The dialogs of groups, and of the limits of a group or a key. account-keys.tsx and groups-page.tsx open
 * them. A dialog asks before it acts (`Question`). Browser.
 *
 * Must hold, of `changesOfLimits`: only limits that were changed are sent, or two operators would undo each
 * other's changes. A field that was emptied removes its limit (test/unit/console/quota-dialogs.test.ts,
 * test/e2e/console-groups.test.ts).
 */
import { useState } from 'preact/hooks';
import type { GroupView, KeyView, QuotasView } from '../admin/views.js';
import { QUOTA_NAMES, type QuotaName } from '../core/quotas.js';
import { moveAccount } from './account-dialogs.js';
import { post } from './api.js';
import { TextField, useInput } from './controls.js';
import { type ChangeProps, type Closable, type CreateProps, LongName, Question } from './dialogs.js';
import { isMoneyQuota, quotaTitle } from './quotas.js';

/** Returns the group's path below `/admin/v1`. groups-page.tsx uses it too. */
export const pathTo = (group: GroupView): string => `/groups/${encodeURIComponent(group.id)}`;

/** By quota: the text of the field for its limit; empty for no limit. No limit is 0, so `min` is 1. */
type LimitTexts = Readonly<Record<QuotaName, string>>;

/**
 * Fields of a request's body; null removes a limit. An empty body changes no limit
 * (test/unit/admin/group-routes.test.ts).
 */
type LimitChanges = Readonly<Partial<Record<QuotaName, number | string | null>>>;

interface LimitsInput {
  readonly texts: LimitTexts;
  readonly setTexts: (texts: LimitTexts) => void;
  readonly body: LimitChanges;
}

/** Returns the limits whose texts differ, apart from spaces around them. The gateway checks the numbers. */
export function changesOfLimits(initial: LimitTexts, texts: LimitTexts): LimitChanges {
  const changed = QUOTA_NAMES.filter((quota) => texts[quota].trim() !== initial[quota]);
  // A number field with another text reads as '', but browsers do not submit it. Money is sent as text.
  const valueOf = (quota: QuotaName): number | string | null => {
    const text = texts[quota].trim();
    return text === '' ? null : isMoneyQuota(quota) ? text : Number(text);
  };
  return Object.fromEntries(changed.map((quota) => [quota, valueOf(quota)]));
}

/** The limits that an operator edits. `quotas`: those in force when the dialog opens; {} for a new group. */
function useLimits(quotas: QuotasView = {}): LimitsInput {
  const [initial] = useState(() => {
    const entries = QUOTA_NAMES.map((quota) => [quota, String(quotas[quota]?.limit ?? '')]);
    return Object.fromEntries(entries) as LimitTexts;
  });
  const [texts, setTexts] = useState(initial);
  return { texts, setTexts, body: changesOfLimits(initial, texts) };
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

interface NewGroupProps extends CreateProps<GroupView> {
  /** Undefined for a group at the top. */
  readonly parent: GroupView | undefined;
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
