/**
 * A question that must be answered before anything else: the browser's own dialog, which keeps the keyboard inside and closes
 * with Escape. Browser.
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { ErrorText } from './controls.js';
import { useSubmission } from './submission.js';

export interface Closable {
  readonly onClose: () => void;
}

interface DialogProps extends Closable {
  readonly title: string;
  readonly children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
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
        event.preventDefault();
        onClose();
      }}
    >
      <h2 id={titleId}>{title}</h2>
      {children}
    </dialog>
  );
}

interface FormDialogProps extends DialogProps {
  /** On the button that does it. */
  readonly verb: string;
  /** Whether it takes something away. */
  readonly harmful?: boolean;
  /** Does it; the dialog closes when it has been done, and shows why where it could not be. */
  readonly onSubmit: () => Promise<void>;
}

export function FormDialog({ title, verb, harmful = false, onClose, onSubmit, children }: FormDialogProps) {
  const submission = useSubmission(onSubmit);
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={submission.onSubmit}>
        {children}
        <ErrorText text={submission.problem} />
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class={harmful ? 'danger' : 'primary'} disabled={submission.busy}>
            {verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
