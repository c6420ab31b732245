/**
 * What a place of the admin interface answers, asked for again and again while it is looked at. Browser.
 */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { get, wordsOf } from './api.js';

export interface Polled<Answer> {
  /** The last that came, of a former place until that of the new one is there; undefined at first. */
  readonly answer: Answer | undefined;
  readonly problem: string | undefined;
  readonly reload: () => void;
  /** Where something else was told the newest. */
  readonly setAnswer: (answer: Answer) => void;
}

export function usePolled<Answer>(place: string, refreshMs: number): Polled<Answer> {
  const [answer, setAnswer] = useState<Answer>();
  const [problem, setProblem] = useState<string>();
  const wanted = useRef(place);
  wanted.current = place;
  const reload = useCallback((): void => {
    if (document.hidden) return;
    get<Answer>(place).then(
      (found) => {
        if (wanted.current !== place) return;
        setAnswer(found);
        setProblem(undefined);
      },
      (error: unknown) => {
        if (wanted.current === place) setProblem(wordsOf(error));
      },
    );
  }, [place]);
  useEffect(() => {
    reload();
    const timer = setInterval(reload, refreshMs);
    return () => clearInterval(timer);
  }, [reload, refreshMs]);
  return { answer, problem, reload, setAnswer };
}
