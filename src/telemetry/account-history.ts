/**
 * The course of the busiest accounts over the last 24 hours, in rings of the same lengths as the history's: what all processes
 * have told of a span is summed up once they have had the time to tell it. Main thread of the gateway that has the admin
 * interface.
 */
import {
  HISTORY_PERIOD_SECONDS,
  HISTORY_RINGS,
  RING_NAMES,
  type RingName,
  type RingShape,
} from './history.js';
import type { AccountReport } from './top-accounts.js';

/*
 * What accounts have called in a span of time: a handful of sums, and which accounts of many have the most. Pure; main thread.
 */

/** Costs are numbers: for charts and not for bills. */
export interface AccountStats {
  calls: number;
  /** Tokens. */
  prompt: number;
  cached: number;
  completion: number;
  costPicoUnits: number;
}

/** By the accounts' ids. */
export type AccountsStats = Readonly<Record<string, Readonly<AccountStats>>>;

export interface AccountSpan {
  /** Unix seconds, a multiple of the ring's span. */
  readonly start: number;
  readonly accounts: AccountsStats;
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

export function noStats(): AccountStats {
  return { calls: 0, prompt: 0, cached: 0, completion: 0, costPicoUnits: 0 };
}

export function addStats(sum: AccountStats, stats: Readonly<AccountStats>): void {
  sum.calls += stats.calls;
  sum.prompt += stats.prompt;
  sum.cached += stats.cached;
  sum.completion += stats.completion;
  sum.costPicoUnits += stats.costPicoUnits;
}

/** Adds to the sums of an account, which begin with its first. */
export function addTo<Account>(
  sums: Map<Account, AccountStats>,
  account: Account,
  stats: Readonly<AccountStats>,
): void {
  let sum = sums.get(account);
  if (sum === undefined) {
    sum = noStats();
    sums.set(account, sum);
  }
  addStats(sum, stats);
}

/**
 * Those with most calls, the busiest first; of those with as many the first noted. One pass: of 20,000 accounts that have
 * called most are none of the fifty, and need not be sorted.
 */
export function busiestOf<Account>(
  sums: ReadonlyMap<Account, AccountStats>,
): (readonly [Account, AccountStats])[] {
  const busiest: (readonly [Account, AccountStats])[] = [];
  for (const entry of sums) {
    const { calls } = entry[1];
    if (busiest.length === ACCOUNTS_OF_SPAN_MAX && calls <= busiest.at(-1)![1].calls) continue;
    const place = busiest.findIndex(([, other]) => other.calls < calls);
    busiest.splice(place === -1 ? busiest.length : place, 0, entry);
    if (busiest.length > ACCOUNTS_OF_SPAN_MAX) busiest.pop();
  }
  return busiest;
}

/** From a span's end until it is summed up: two readings, so that all processes have seen its end. */
const TELLING_SECONDS = 2 * HISTORY_PERIOD_SECONDS;

export class AccountHistory {
  readonly #rings = new Map<RingName, AccountRing>(
    RING_NAMES.map((name) => [name, new AccountRing(HISTORY_RINGS[name])]),
  );

  /** Spans of an earlier life, in the order of their starts; those that are too old or not in order are left out. */
  restore(ring: RingName, spans: readonly AccountSpan[], nowSeconds: number): void {
    this.#rings.get(ring)!.restore(spans, nowSeconds);
  }

  /** Takes in what the processes tell, and gives back the spans that are complete with it. */
  add(tellings: readonly AccountReport[], nowSeconds: number): AccountSpanOfRing[] {
    for (const { source, spans } of tellings) {
      for (const { ring, span } of spans) this.#rings.get(ring)!.take(source, span, nowSeconds);
    }
    return [...this.#rings].flatMap(([ring, spans]) =>
      spans.complete(nowSeconds).map((span) => ({ ring, span })),
    );
  }

  /** Complete spans of the time that the ring covers until now, oldest first. A span without a call is not there. */
  spans(ring: RingName, nowSeconds: number): readonly AccountSpan[] {
    const { seconds, spans } = HISTORY_RINGS[ring];
    const oldest = nowSeconds - TELLING_SECONDS - seconds * spans;
    return this.#rings.get(ring)!.spans.filter(({ start }) => start >= oldest);
  }
}

class AccountRing {
  readonly #shape: RingShape;
  readonly #spans: AccountSpan[] = [];
  /** By start, and in it by who has told. A few: those of the last seconds. */
  readonly #told = new Map<number, Map<string, AccountsStats>>();

  constructor(shape: RingShape) {
    this.#shape = shape;
  }

  get spans(): readonly AccountSpan[] {
    return this.#spans;
  }

  restore(spans: readonly AccountSpan[], nowSeconds: number): void {
    for (const span of spans) if (this.#isNew(span.start, nowSeconds)) this.#spans.push(span);
  }

  take(source: string, { start, accounts }: AccountSpan, nowSeconds: number): void {
    if (!this.#isNew(start, nowSeconds)) return;
    const told = this.#told.get(start) ?? new Map<string, AccountsStats>();
    this.#told.set(start, told.set(source, accounts));
  }

  complete(nowSeconds: number): AccountSpan[] {
    const { seconds, spans } = this.#shape;
    const starts = [...this.#told.keys()]
      .filter((start) => start + seconds + TELLING_SECONDS <= nowSeconds)
      .sort((left, right) => left - right);
    const completed = starts.map((start) => {
      const accounts = sumOf([...this.#told.get(start)!.values()]);
      this.#told.delete(start);
      return { start, accounts };
    });
    this.#spans.push(...completed);
    this.#spans.splice(0, this.#spans.length - spans);
    return completed;
  }

  /** Processes tell of a span as long as they have no later one. */
  #isNew(start: number, nowSeconds: number): boolean {
    const { seconds, spans } = this.#shape;
    const last = this.#spans.at(-1)?.start ?? -Infinity;
    return start > last && start <= nowSeconds && start >= nowSeconds - seconds * spans;
  }
}

function sumOf(parts: readonly AccountsStats[]): AccountsStats {
  const sums = new Map<string, AccountStats>();
  for (const part of parts) for (const [id, stats] of Object.entries(part)) addTo(sums, id, stats);
  return Object.fromEntries(busiestOf(sums));
}

/** What the busiest accounts have called in all of the spans, the busiest first. */
export function busiestAccounts(spans: readonly AccountSpan[]): [string, AccountStats][] {
  return Object.entries(sumOf(spans.map(({ accounts }) => accounts)));
}

/** What one account has called in each of the spans. */
export function courseOf(
  spans: readonly AccountSpan[],
  id: string,
): { readonly start: number; readonly figures: Readonly<AccountStats> }[] {
  return spans.map(({ start, accounts }) => ({ start, figures: accounts[id] ?? noStats() }));
}
