/**
 * What can be done with accounts, each with its question. Browser.
 */
import { useState } from 'preact/hooks';
import { post } from './api.js';
import { Choice, TextField } from './controls.js';
import { FormDialog, type Closable } from './dialog.js';
import { money, number } from './format.js';
import type { Account, Plan } from './views.js';

export function NewAccountDialog(
  props: Closable & { readonly plans: readonly Plan[]; readonly onMade: (account: Account) => void },
) {
  const { plans, onClose, onMade } = props;
  const [name, setName] = useState('');
  const [plan, setPlan] = useState(plans[0]?.id ?? '');
  const [credit, setCredit] = useState('');
  return (
    <FormDialog
      title="New account"
      verb="Create account"
      onClose={onClose}
      onSubmit={async () =>
        onMade(
          await post<Account>('/accounts', {
            name,
            plan,
            ...(credit.trim() === '' ? {} : { credit: credit.trim() }),
          }),
        )
      }
    >
      <TextField
        label="Name"
        hint="Unique; it cannot be changed later."
        required
        value={name}
        onText={setName}
      />
      <PlanChoice plans={plans} value={plan} onChoice={setPlan} />
      <TextField
        label="Opening balance"
        hint="A decimal amount such as 10.00; empty for nothing."
        inputMode="decimal"
        value={credit}
        onText={setCredit}
      />
    </FormDialog>
  );
}

interface AccountDialogProps extends Closable {
  readonly account: Account;
  readonly onChanged: (account: Account) => void;
}

export function CreditDialog({ account, onClose, onChanged }: AccountDialogProps) {
  const [amount, setAmount] = useState('');
  const [note, setNote] = useState('');
  /** Pressed twice, or sent again after a response was lost, the amount is booked once. */
  const [idempotencyKey] = useState(() => newRequestName());
  return (
    <FormDialog
      title="Add credit"
      verb="Book it"
      onClose={onClose}
      onSubmit={async () =>
        onChanged(
          await post<Account>(`/accounts/${encodeURIComponent(account.id)}/credit`, {
            amount: amount.trim(),
            note,
            idempotency_key: idempotencyKey,
          }),
        )
      }
    >
      <p>
        <bdi class="long-name">{account.name}</bdi> has {money(account.balance)}.
      </p>
      <TextField
        label="Amount"
        hint="A decimal amount such as 10.00; with a minus it is taken away."
        inputMode="decimal"
        required
        value={amount}
        onText={setAmount}
      />
      <TextField label="Note" hint="For the journal: why." maxLength={500} value={note} onText={setNote} />
    </FormDialog>
  );
}

/** Over plain HTTP, on another host than this one, a browser has no `crypto.randomUUID`. */
function newRequestName(): string {
  const words = crypto.getRandomValues(new Uint32Array(4));
  return `console-${[...words].map((word) => word.toString(16).padStart(8, '0')).join('')}`;
}

export function PlanDialog({
  account,
  plans,
  onClose,
  onChanged,
}: AccountDialogProps & { readonly plans: readonly Plan[] }) {
  const [plan, setPlan] = useState(account.plan);
  return (
    <FormDialog
      title="Change plan"
      verb="Change plan"
      onClose={onClose}
      onSubmit={async () =>
        onChanged(await post<Account>(`/accounts/${encodeURIComponent(account.id)}/set-plan`, { plan }))
      }
    >
      <p>
        <bdi class="long-name">{account.name}</bdi> keeps what it has used in this minute and day.
      </p>
      <PlanChoice plans={plans} value={plan} onChoice={setPlan} />
    </FormDialog>
  );
}

export function StatusDialog({ account, onClose, onChanged }: AccountDialogProps) {
  const verb = account.active ? 'disable' : 'enable';
  return (
    <FormDialog
      title={account.active ? 'Disable account' : 'Enable account'}
      verb={account.active ? 'Disable' : 'Enable'}
      harmful={account.active}
      onClose={onClose}
      onSubmit={async () =>
        onChanged(await post<Account>(`/accounts/${encodeURIComponent(account.id)}/${verb}`))
      }
    >
      <p>
        {account.active ? 'From now on all keys of ' : 'The active keys of '}
        <bdi class="long-name">{account.name}</bdi>
        {account.active ? ' are refused. Calls under way are finished.' : ' are taken again.'}
      </p>
    </FormDialog>
  );
}

interface PlanChoiceProps {
  readonly plans: readonly Plan[];
  readonly value: string;
  readonly onChoice: (plan: string) => void;
}

function PlanChoice({ plans, value, onChoice }: PlanChoiceProps) {
  const chosen = plans.find(({ id }) => id === value);
  return (
    <Choice
      label="Plan"
      {...(chosen === undefined
        ? {}
        : {
            hint: `${number(chosen.requests_per_minute)} requests a minute, ${number(chosen.calls_per_day)} calls a day`,
          })}
      value={value}
      options={plans.map(({ id }) => [id, id] as const)}
      onChoice={onChoice}
    />
  );
}
