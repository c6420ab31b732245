/**
 * The history of accounts as it is asked for, again and again while it is looked at. Browser.
 */
import { useEffect, useState } from 'preact/hooks';
import { get, wordsOf } from './api.js';
import type { AccountHistory, Range } from './views.js';

/** A new span comes every two seconds in the shortest range, every ten in the next; nobody waits for one longer. */
const REFRESH_MS: Readonly<Record<Range, number>> = {
  '5m': 2_000,
  '1h': 10_000,
  '6h': 10_000,
  '24h': 10_000,
};

export interface Asked<Line> {
  /** Undefined until it has come. */
  readonly history: AccountHistory<Line> | undefined;
  readonly problem: string | undefined;
}

/** `place`: `/history/accounts`, or of one account. */
export function useAccountHistory<Line>(place: string, range: Range): Asked<Line> {
  const [history, setHistory] = useState<AccountHistory<Line>>();
  const [problem, setProblem] = useState<string>();
  useEffect(() => {
    let current = true;
    const load = (): void => {
      if (document.hidden) return;
      get<AccountHistory<Line>>(`${place}?range=${range}`).then(
        (found) => {
          if (!current) return;
          setHistory(found);
          setProblem(undefined);
        },
        (error: unknown) => {
          if (current) setProblem(wordsOf(error));
        },
      );
    };
    load();
    const timer = setInterval(load, REFRESH_MS[range]);
    return () => {
      current = false;
      clearInterval(timer);
    };
  }, [place, range]);
  // What was asked for before is not shown as what is asked for now.
  return { history: history?.range === range ? history : undefined, problem };
}
