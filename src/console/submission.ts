/**
 * What a form does when it is sent: once at a time, and in words where it could not be done. Browser.
 */
import { useState } from 'preact/hooks';
import { textOf } from './api.js';

export interface Submission {
  /** Why the last one failed. */
  readonly problem: string | undefined;
  readonly busy: boolean;
  readonly onSubmit: (event: Event) => void;
}

export function useSubmission(act: () => Promise<void>): Submission {
  const [problem, setError] = useState<string>();
  const [busy, setBusy] = useState(false);
  const submit = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      await act();
    } catch (error) {
      setError(textOf(error));
    } finally {
      setBusy(false);
    }
  };
  const onSubmit = (event: Event): void => {
    event.preventDefault();
    void submit();
  };
  return { problem, busy, onSubmit };
}
