/**
 * Components of dialogs: a question with a form, the questions that disable or delete an item, and a secret
 * that is shown once. account-dialogs.tsx, quota-dialogs.tsx and the pages make their dialogs of them. A
 * dialog is the browser's own, which keeps the keyboard inside and closes with Escape. Browser.
 *
 * Must hold (test/e2e/console-pages.test.ts):
 * - A secret that was created is shown once, and its dialog closes only by its button: neither when the
 *   session ends nor by Escape or the browser's Back. Who leaves the console is asked by the browser.
 * - A question stays open while its action runs. So the end of an action closes no dialog that was opened
 *   meanwhile, and nobody takes an action for cancelled that goes on.
 * - A question does what it asked when it opened: all are opened by `useDialog`
 *   (test/e2e/console-rules.test.ts).
 */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { AccountView } from '../admin/views.js';
import { post, remove } from './api.js';
import { useAction } from './api-hooks.js';
import { keepPage } from './session.js';
import { Button, CopyButton, ErrorText } from './controls.js';

export interface Closable {
  readonly onClose: () => void;
}

/** For a dialog that creates an item. `onCreated` gets it, with its secret, and must close the dialog. */
export interface CreateProps<Item> extends Closable {
  readonly onCreated: (item: Item) => void;
}

/** For a dialog that changes `item`. `onChanged` gets the new item, and must close the dialog. */
export interface ChangeProps<Item> extends Closable {
  readonly item: Item;
  readonly onChanged: (item: Item) => void;
}

/**
 * The one open dialog of a component, to be drawn; undefined if none is open. It keeps the properties with
 * which it was opened: it does what its text says, even if an operator has changed the item since.
 */
export function useDialog() {
  const [dialog, open] = useState<JSX.Element>();
  return { dialog, open, onClose: (): void => open(undefined) };
}

/**
 * As `useDialog`, for a list of items with secrets. A new secret is shown at once: nobody sees it again.
 * `secretName`: what it is called, which is its field in the view of a new item.
 */
export function useSecretDialog<SecretName extends 'key' | 'token'>(
  reload: () => void,
  noun: string,
  secretName: SecretName,
) {
  const { dialog, open, onClose } = useDialog();
  const dialogProps = {
    onClose,
    onChanged: (): void => {
      onClose();
      reload();
    },
    onCreated: (created: Readonly<Record<SecretName, string>>): void => {
      open(<ShownSecretDialog noun={secretName} secret={created[secretName]} onClose={onClose} />);
      reload();
    },
  };
  const actionButton = (item: { readonly name: string }, text: string, action: JSX.Element) => (
    <Button class="quiet" aria-label={`${text} ${noun} ${item.name}`} onClick={() => open(action)}>
      {text}
    </Button>
  );
  return { dialog, open, dialogProps, actionButton };
}

interface DialogProps extends Closable {
  readonly title: string;
  readonly children: ComponentChildren;
}

interface ClosingProps {
  /** Whether Escape calls `onClose`. */
  readonly closesByEscape: boolean;
}

/**
 * Opens when it is drawn. When it is removed, the element that had the focus gets it back, before the next
 * key can be pressed: effects of `useEffect` come only after the next paint.
 */
function Dialog({ title, closesByEscape, onClose, children }: DialogProps & ClosingProps) {
  const element = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useLayoutEffect(() => {
    // Not null: the element is drawn by now.
    const dialog = element.current!;
    dialog.showModal();
    // The browser gives the focus back.
    return () => dialog.close();
  }, []);
  return (
    <dialog
      ref={element}
      aria-labelledby={titleId}
      // Without `none`, Chromium closes a dialog at the second Escape, whatever `onCancel` does.
      closedby={closesByEscape ? 'closerequest' : 'none'}
      onCancel={(event) => {
        // Escape was pressed. The owner closes the dialog: it no longer draws the component.
        event.preventDefault();
        if (closesByEscape) onClose();
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
    <Dialog title={title} closesByEscape={!isBusy} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          run();
        }}
      >
        {children}
        <ErrorText text={error} />
        <div class="actions">
          <Button disabled={isBusy} onClick={onClose}>
            Cancel
          </Button>
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
    ['The active keys of ', ' are accepted again.'],
  ],
  key: [
    ['', ' is refused from now on.'],
    ['', ' is accepted again.'],
  ],
  operator: [
    ['The token of ', ' is refused from now on, and its sessions end.'],
    ['The token of ', ' is accepted again.'],
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

interface ShownSecretProps extends Closable {
  /** What the secret is, for screen readers and tests: `key`. */
  readonly noun: string;
  readonly secret: string;
}

/** Keeps the page while it is open, because the secret cannot be shown again. */
function ShownSecretDialog({ noun, secret, onClose }: ShownSecretProps) {
  useEffect(() => {
    const letGo = keepPage();
    const askFirst = (event: BeforeUnloadEvent): void => event.preventDefault();
    addEventListener('beforeunload', askFirst);
    return () => {
      removeEventListener('beforeunload', askFirst);
      letGo();
    };
  }, []);
  return (
    <Dialog title={`The new ${noun}`} closesByEscape={false} onClose={onClose}>
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
