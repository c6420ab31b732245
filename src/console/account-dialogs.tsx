/**
 * The dialogs by which an operator creates an account, adds credit, and moves an account to another plan or
 * group. accounts-page.tsx opens them. A dialog asks before it acts (`Question`). Browser.
 *
 * Must hold: an amount that is sent again after an error is booked once, because each request of a dialog has
 * the same idempotency key (test/e2e/console-rules.test.ts).
 */
import { useState } from 'preact/hooks';
import { PAGE_ITEMS_MAX } from '../admin/addresses.js';
import type { AccountView, GroupView, ListView, PlanView } from '../admin/views.js';
import { post, queryOf } from './api.js';
import { useView } from './api-hooks.js';
import { Choice, ErrorText, idsOf, type Input, TextField, useInput } from './controls.js';
import { type ChangeProps, type CreateProps, LongName, Question } from './dialogs.js';
import { money } from './format.js';
import { limitsText } from './quotas.js';

/** Shows the limits of the chosen plan. */
function PlanChoice({ plans, ...input }: Input & { readonly plans: readonly PlanView[] }) {
  const plan = plans.find(({ id }) => id === input.value);
  return <Choice label="Plan" hint={plan && limitsText(plan)} options={idsOf(plans)} {...input} />;
}

interface NewAccountProps extends CreateProps<AccountView> {
  /** At least one. */
  readonly plans: readonly PlanView[];
}

export function NewAccountDialog({ plans, onClose, onCreated }: NewAccountProps) {
  const name = useInput();
  const plan = useInput(plans[0]?.id);
  const credit = useInput();
  const amount = credit.value.trim();
  const body = { name: name.value, plan: plan.value, ...(amount === '' ? {} : { credit: amount }) };
  return (
    <Question
      title="New account"
      verb="Create account"
      onClose={onClose}
      act={async () => onCreated(await post<AccountView>('/accounts', body))}
    >
      <TextField label="Name" hint="Unique; it cannot be changed later." required {...name} />
      <PlanChoice plans={plans} {...plan} />
      <TextField
        label="Opening balance"
        hint="A decimal amount such as 10.00; empty for nothing."
        inputMode="decimal"
        {...credit}
      />
    </Question>
  );
}

/** `change`: the last segment of the route's path. */
const changeAccount = (account: AccountView, change: string, body?: object): Promise<AccountView> =>
  post<AccountView>(`/accounts/${encodeURIComponent(account.id)}/${change}`, body);

export function CreditDialog({ item: account, onClose, onChanged }: ChangeProps<AccountView>) {
  const amount = useInput();
  const note = useInput();
  /** The same for all requests of the dialog. */
  const [idempotencyKey] = useState(newIdempotencyKey);
  const body = { amount: amount.value.trim(), note: note.value, idempotency_key: idempotencyKey };
  return (
    <Question
      title="Add credit"
      verb="Book it"
      onClose={onClose}
      act={async () => onChanged(await changeAccount(account, 'credit', body))}
    >
      <p>
        <LongName text={account.name} /> has {money(account.balance)}.
      </p>
      <TextField
        label="Amount"
        hint="A decimal amount such as 10.00; with a minus it is taken away."
        inputMode="decimal"
        required
        {...amount}
      />
      <TextField label="Note" hint="For the journal: why." maxLength={500} {...note} />
    </Question>
  );
}

/** Does not use `crypto.randomUUID`, which browsers lack over plain HTTP unless the host is localhost. */
function newIdempotencyKey(): string {
  const words = crypto.getRandomValues(new Uint32Array(4));
  return `console-${[...words].map((word) => word.toString(16).padStart(8, '0')).join('')}`;
}

type PlanDialogProps = ChangeProps<AccountView> & { readonly plans: readonly PlanView[] };

export function PlanDialog({ item: account, plans, onClose, onChanged }: PlanDialogProps) {
  const plan = useInput(account.plan);
  return (
    <Question
      title="Change plan"
      onClose={onClose}
      act={async () => onChanged(await changeAccount(account, 'set-plan', { plan: plan.value }))}
    >
      <p>
        <LongName text={account.name} /> keeps what it has used in this minute and day.
      </p>
      <PlanChoice plans={plans} {...plan} />
    </Question>
  );
}

/** One page. To reach another group, an operator opens the group's page and adds the account there. */
const GROUPS_OFFERED_MAX = PAGE_ITEMS_MAX;

/** `account`: id or name. `group`: null for no group. */
export const moveAccount = (account: string, group: string | null): Promise<AccountView> =>
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
