/**
 * The dialogs of accounts and keys, and components of dialogs of other pages. A dialog is the browser's own,
 * which keeps the keyboard inside and closes with Escape. accounts-page.tsx and account-keys.tsx open them;
 * groups-page.tsx, operators-page.tsx and quota-dialogs.tsx use the components. Browser.
 *
 * Must hold: a secret that was created is shown once, and its dialog does not close by itself, not even when
 * the session ends (test/e2e/console.test.ts, test/e2e/console-pages.test.ts).
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { AccountView, CreatedKeyView, KeyView, PlanView } from '../admin/views.js';
import { keepPage, post, remove, useAction } from './api.js';
import { Button, Choice, CopyButton, ErrorText, idsOf, type Input, TextField, useInput } from './controls.js';
import { money } from './format.js';
import { limitsText } from './quotas.js';

export interface Closable {
  readonly onClose: () => void;
}

/** For a dialog that changes `item`. `onChanged` gets the new item, and must close the dialog. */
export interface ChangeProps<Item> extends Closable {
  readonly item: Item;
  readonly onChanged: (item: Item) => void;
}

interface DialogProps extends Closable {
  readonly title: string;
  readonly children: ComponentChildren;
}

/** Opens when it is first drawn. When it is removed, the element that had the focus gets it back. */
function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => {
    const opener = document.activeElement;
    element.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby={titleId}
      onCancel={(event) => {
        // Escape was pressed. The owner closes the dialog: it no longer draws the component.
        event.preventDefault();
        onClose();
      }}
    >
      <h2 id={titleId}>{title}</h2>
      {children}
    </dialog>
  );
}

interface QuestionProps extends DialogProps {
  /** Text of the button that runs `act`; by default the title. */
  readonly verb?: string;
  /** Whether the action takes something away. The button then has the colour of danger. */
  readonly isHarmful?: boolean;
  /** The action. It closes the dialog itself if it succeeds; if it rejects, the dialog shows why. */
  readonly act: () => Promise<void>;
}

/** A dialog with a form, which asks before it does something. */
export function Question({ title, verb = title, isHarmful = false, onClose, act, children }: QuestionProps) {
  const { error, isBusy, run } = useAction(act);
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          run();
        }}
      >
        {children}
        <ErrorText text={error} />
        <div class="actions">
          <Button onClick={onClose}>Cancel</Button>
          <button type="submit" class={isHarmful ? 'danger' : 'primary'} disabled={isBusy}>
            {verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** A name that is never cut, because a question must show the whole. */
export const LongName = ({ text }: { readonly text: string }) => <bdi class="long-name">{text}</bdi>;

/** Shows the limits of the chosen plan below it. */
function PlanChoice({ plans, ...input }: Input & { readonly plans: readonly PlanView[] }) {
  const plan = plans.find(({ id }) => id === input.value);
  return <Choice label="Plan" hint={plan && limitsText(plan)} options={idsOf(plans)} {...input} />;
}

interface NewAccountProps extends Closable {
  /** At least one. */
  readonly plans: readonly PlanView[];
  readonly onCreated: (account: AccountView) => void;
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

interface AccountDialogProps extends Closable {
  readonly account: AccountView;
  readonly onChanged: (account: AccountView) => void;
}

/** `change`: the last segment of the route's path. */
const changeAccount = (account: AccountView, change: string, body?: object): Promise<AccountView> =>
  post<AccountView>(`/accounts/${encodeURIComponent(account.id)}/${change}`, body);

export function CreditDialog({ account, onClose, onChanged }: AccountDialogProps) {
  const amount = useInput();
  const note = useInput();
  /** The same for all requests of the dialog: an amount that is sent again after an error is booked once. */
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

type PlanDialogProps = AccountDialogProps & { readonly plans: readonly PlanView[] };

export function PlanDialog({ account, plans, onClose, onChanged }: PlanDialogProps) {
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

interface SwitchProps<View> extends ChangeProps<View> {
  readonly noun: keyof typeof SWITCH_TEXTS;
}

/**
 * By the noun of an item, which with an `s` is the path of the routes: the texts before and after the item's
 * name, first for `disable`, then for `enable`.
 */
const SWITCH_TEXTS = {
  account: [
    ['From now on all keys of ', ' are refused. Calls under way are finished.'],
    ['The active keys of ', ' are taken again.'],
  ],
  key: [
    ['', ' is refused from now on.'],
    ['', ' is taken again.'],
  ],
  operator: [
    ['The token of ', ' is refused from now on, and its sessions end.'],
    ['The token of ', ' is taken again.'],
  ],
} as const;

/** Disables an active item, and enables any other item. */
export function SwitchDialog<View extends Pick<AccountView, 'id' | 'name' | 'active'>>(
  props: SwitchProps<View>,
) {
  const { noun, item, onClose, onChanged } = props;
  const { active, id, name } = item;
  const verb = active ? 'Disable' : 'Enable';
  const path = `/${noun}s/${encodeURIComponent(id)}/${verb.toLowerCase()}`;
  const [textBefore, textAfter] = SWITCH_TEXTS[noun][active ? 0 : 1];
  return (
    <Question
      title={`${verb} ${noun}`}
      verb={verb}
      isHarmful={active}
      onClose={onClose}
      act={async () => onChanged(await post<View>(path))}
    >
      <p>
        {textBefore}
        <LongName text={name} />
        {textAfter}
      </p>
    </Question>
  );
}

interface NewKeyProps extends Closable {
  readonly account: AccountView;
  readonly onCreated: (key: CreatedKeyView) => void;
}

/** `onCreated` gets the only view that has the key itself. */
export function NewKeyDialog({ account, onClose, onCreated }: NewKeyProps) {
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

interface RotateKeyProps extends Closable {
  readonly item: KeyView;
  readonly onCreated: (key: CreatedKeyView) => void;
}

export function RotateKeyDialog({ item, onClose, onCreated }: RotateKeyProps) {
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
        A new key takes the place of <LongName text={item.name} />. The former one works on for the time
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

interface DeleteProps extends Closable {
  /** What is deleted: `key`. */
  readonly noun: string;
  /** The path of the item below `/admin/v1`. */
  readonly path: string;
  readonly onChanged: () => void;
  readonly children: ComponentChildren;
}

export function DeleteDialog({ noun, path, onClose, onChanged, children }: DeleteProps) {
  return (
    <Question
      title={`Delete ${noun}`}
      verb="Delete for good"
      isHarmful
      onClose={onClose}
      act={async () => {
        await remove(path);
        onChanged();
      }}
    >
      <p>{children}</p>
    </Question>
  );
}

/** Makes a private key not private, and any other key private. */
export function PrivateKeyDialog({ item, onClose, onChanged }: ChangeProps<KeyView>) {
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

interface ShownSecretProps extends Closable {
  readonly title: string;
  /** What the secret is, for screen readers and tests: `key`. */
  readonly noun: string;
  readonly secret: string;
}

/** Keeps the page while it is open, because the secret cannot be shown again. */
export function ShownSecretDialog({ title, noun, secret, onClose }: ShownSecretProps) {
  useEffect(keepPage, []);
  return (
    <Dialog title={title} onClose={onClose}>
      <p class="notice warn">It is shown only once. Only its digest is kept: nobody can look it up later.</p>
      <p class="secret">
        <code data-testid={`new-${noun}`}>{secret}</code>
        <CopyButton text={secret} noun={`the ${noun}`} />
      </p>
      <div class="actions">
        <Button class="primary" onClick={onClose}>
          I have it
        </Button>
      </div>
    </Dialog>
  );
}
