/**
 * What accounts have called in a span of time: a handful of sums, and which accounts of many have the most. Pure; main thread.
 */
import type { RingName } from './history.js';

/** Costs are numbers: for charts and not for bills. */
export interface AccountFigures {
  calls: number;
  /** Tokens. */
  prompt: number;
  cached: number;
  completion: number;
  costPicoUnits: number;
}

/** By the accounts' ids. */
export type AccountsFigures = Readonly<Record<string, Readonly<AccountFigures>>>;

export interface AccountSpan {
  /** Unix seconds, a multiple of the ring's span. */
  readonly start: number;
  readonly accounts: AccountsFigures;
}

export interface AccountSpanOfRing {
  readonly ring: RingName;
  readonly span: AccountSpan;
}

/**
 * Accounts of one span: more than fit a table that is looked at. A span has 5 KB then, and all rings together 6 MB in memory
 * and 5 on disk. Who has less is in the usage of the books, by the hour.
 */
export const ACCOUNTS_OF_SPAN_MAX = 50;

export function noFigures(): AccountFigures {
  return { calls: 0, prompt: 0, cached: 0, completion: 0, costPicoUnits: 0 };
}

export function addFigures(sum: AccountFigures, figures: Readonly<AccountFigures>): void {
  sum.calls += figures.calls;
  sum.prompt += figures.prompt;
  sum.cached += figures.cached;
  sum.completion += figures.completion;
  sum.costPicoUnits += figures.costPicoUnits;
}

/** Adds to the sums of an account, which begin with its first. */
export function addTo<Account>(
  sums: Map<Account, AccountFigures>,
  account: Account,
  figures: Readonly<AccountFigures>,
): void {
  let sum = sums.get(account);
  if (sum === undefined) {
    sum = noFigures();
    sums.set(account, sum);
  }
  addFigures(sum, figures);
}

/**
 * Those with most calls, the busiest first; of those with as many the first noted. One pass: of 20,000 accounts that have
 * called most are none of the fifty, and need not be sorted.
 */
export function busiestOf<Account>(
  sums: ReadonlyMap<Account, AccountFigures>,
): (readonly [Account, AccountFigures])[] {
  const busiest: (readonly [Account, AccountFigures])[] = [];
  for (const entry of sums) {
    const { calls } = entry[1];
    if (busiest.length === ACCOUNTS_OF_SPAN_MAX && calls <= busiest.at(-1)![1].calls) continue;
    const place = busiest.findIndex(([, other]) => other.calls < calls);
    busiest.splice(place === -1 ? busiest.length : place, 0, entry);
    if (busiest.length > ACCOUNTS_OF_SPAN_MAX) busiest.pop();
  }
  return busiest;
}
