/**
 * The history of accounts as it is asked for, again and again while it is looked at. Browser.
 */
import { usePolled } from './polled.js';
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
  const { answer, problem } = usePolled<AccountHistory<Line>>(`${place}?range=${range}`, REFRESH_MS[range]);
  // What was asked for before is not shown as what is asked for now.
  return { history: answer?.range === range ? answer : undefined, problem };
}
