/**
 * Records what the busiest accounts called over the last 24 hours, in rings of the same lengths as in
 * history.ts. Each process reports its spans (top-accounts.ts). In the process with the admin interface
 * gateway/history-recorder.ts brings the reports of all processes here, where they are added up.
 * admin/account-routes.ts reads the sums. Main thread. All times are whole Unix seconds.
 *
 * A process reports the 50 busiest accounts of a span, and a span here has the 50 busiest of the sums. So the
 * sums of an account are lower bounds: where the account is not among the 50, its calls are missing.
 *
 * Must hold: each process's report of a span is added once (`isNew` of history.ts decides which spans are
 * taken), and a span is complete only after all processes have had time to report it. Members of AccountStats
 * keep their names, and a new one is in `noStats` and `addStats`: spans are on disk, and versions of
 * processes may differ. A member that a report lacks counts as 0, or the sum would be NaN from then on.
 */
import {
  HISTORY_PERIOD_SECONDS,
  isAhead,
  RING_NAMES,
  type RingName,
  Rings,
  type Span,
  SpanRing,
  type SpanOfRing,
} from './history.js';

/** Sums of one account. The cost is a float, exact enough for charts, but not for bills. */
export interface AccountStats {
  calls: number;
  /** Tokens of prompts. */
  prompt: number;
  /** The part of `prompt` that providers served from their caches. */
  cached: number;
  /** Tokens of completions. */
  completion: number;
  costPicoUnits: number;
}

/**
 * Sums by the account's id, the busiest account first. An object keeps the order in which ids were added,
 * because no id is a whole number: each begins with `acct_` (registry/record-id.ts).
 */
type StatsById = Readonly<Record<string, Readonly<AccountStats>>>;

export interface AccountSpan extends Span {
  readonly accounts: StatsById;
}

export type AccountSpanOfRing = SpanOfRing<AccountSpan>;

/** A report of one process: plain data, which processes send each other. Adding it again changes nothing. */
export interface AccountReport {
  /** Random text, which each start of a process makes anew. */
  readonly source: string;
  /** Spans of one ring are in the order of their starts. */
  readonly spans: readonly AccountSpanOfRing[];
}

/**
 * How many accounts a span lists: more than a person reads in a table. A full span takes 5 KB. All rings
 * together take 6 MB in memory and 5 MB on disk. The hourly usage on disk covers the other accounts.
 */
export const ACCOUNTS_OF_SPAN_MAX = 50;

/** Returns new sums, all 0. store/history-rows.ts checks that a row on disk has the same members. */
export function noStats(): AccountStats {
  return { calls: 0, prompt: 0, cached: 0, completion: 0, costPicoUnits: 0 };
}

/** Adds `stats` to the sums of the account. */
export function addStats<Account>(
  sums: Map<Account, AccountStats>,
  account: Account,
  stats: Readonly<AccountStats>,
): void {
  let accountSums = sums.get(account);
  if (accountSums === undefined) sums.set(account, (accountSums = noStats()));
  accountSums.calls += stats.calls;
  accountSums.prompt += stats.prompt;
  accountSums.cached += stats.cached;
  accountSums.completion += stats.completion;
  accountSums.costPicoUnits += stats.costPicoUnits;
}

/**
 * Returns the accounts with most calls, at most ACCOUNTS_OF_SPAN_MAX, the busiest first. Accounts with the
 * same number of calls stay in the order in which they were added. Inserts into a short sorted list, because
 * sorting all of the up to 20,000 accounts of a span would take longer.
 */
export function busiestOf<Account>(
  sums: ReadonlyMap<Account, AccountStats>,
): (readonly [Account, AccountStats])[] {
  const busiest: (readonly [Account, AccountStats])[] = [];
  for (const entry of sums) {
    const { calls } = entry[1];
    if (busiest.length === ACCOUNTS_OF_SPAN_MAX && calls <= busiest.at(-1)![1].calls) continue;
    const position = busiest.findIndex(([, ranked]) => ranked.calls < calls);
    busiest.splice(position === -1 ? busiest.length : position, 0, entry);
    if (busiest.length > ACCOUNTS_OF_SPAN_MAX) busiest.pop();
  }
  return busiest;
}

/**
 * How long after a span's end its sum is made. The reports of all processes are read every
 * HISTORY_PERIOD_SECONDS, and a process ends a span only when its report is read, so up to one period late.
 * The second period is for a read that takes long.
 */
const REPORTING_SECONDS = 2 * HISTORY_PERIOD_SECONDS;

export class AccountHistory extends Rings<AccountSpan, AccountRing> {
  constructor() {
    super((name) => new AccountRing(name));
  }

  /**
   * Takes the reports of all processes, every HISTORY_PERIOD_SECONDS; returns the spans that are complete by
   * now, each once: the caller writes them to disk. Ignores a report of a span that was complete before, and
   * of a ring that only another version has.
   */
  add(reports: readonly AccountReport[], nowSeconds: number): AccountSpanOfRing[] {
    for (const { source, spans } of reports) {
      for (const { ring, span } of spans)
        if (RING_NAMES.includes(ring)) this.ring(ring).addReport(source, span, nowSeconds);
    }
    return this.each((ring) => ring.pushComplete(nowSeconds));
  }

  /**
   * Returns the complete spans of the ring's time, oldest first. A span that no process has reported is
   * absent: a process reports no span without calls, but for those that run when it ends (top-accounts.ts).
   */
  spans(ring: RingName, nowSeconds: number): readonly AccountSpan[] {
    const { shape, spans } = this.ring(ring);
    const oldestSeconds = nowSeconds - REPORTING_SECONDS - shape.seconds * shape.spans;
    return spans.filter(({ start }) => start >= oldestSeconds);
  }
}

class AccountRing extends SpanRing<AccountSpan> {
  /** Reports by the span's start, then by `source`. `pushComplete` removes them, `isNew` bounds starts. */
  readonly #reported = new Map<number, Map<string, StatsById>>();

  /** A process repeats its report of a span until it has a later span. The last report counts. */
  addReport(source: string, { start, accounts }: AccountSpan, nowSeconds: number): void {
    // A clock that was far ahead may have left spans, dropped here, and reports, which `pushComplete` drops.
    this.dropAhead(nowSeconds);
    // A span is not new if it is complete already, if it is too old for the ring, or if it is in the future.
    if (!this.isNew(start, nowSeconds)) return;
    const reports = this.#reported.get(start) ?? new Map<string, StatsById>();
    this.#reported.set(start, reports.set(source, accounts));
  }

  /** Sums up the spans that ended REPORTING_SECONDS ago or earlier. Pushes and returns them, oldest first. */
  pushComplete(nowSeconds: number): AccountSpan[] {
    for (const start of this.#reported.keys()) if (isAhead(start, nowSeconds)) this.#reported.delete(start);
    const starts = [...this.#reported.keys()]
      .filter((start) => start + this.shape.seconds + REPORTING_SECONDS <= nowSeconds)
      .sort((first, second) => first - second);
    return starts.map((start) => {
      const span = { start, accounts: sumOf([...this.#reported.get(start)!.values()]) };
      this.#reported.delete(start);
      this.push(span);
      return span;
    });
  }
}

/** Returns the ACCOUNTS_OF_SPAN_MAX busiest accounts of all `reports`, the busiest first. */
function sumOf(reports: readonly StatsById[]): StatsById {
  const sums = new Map<string, AccountStats>();
  for (const report of reports)
    for (const [id, stats] of Object.entries(report)) addStats(sums, id, { ...noStats(), ...stats });
  return Object.fromEntries(busiestOf(sums));
}

/** Returns the busiest accounts of all the spans together, the busiest first; their sums are lower bounds. */
export function busiestAccounts(spans: readonly AccountSpan[]): [string, AccountStats][] {
  return Object.entries(sumOf(spans.map(({ accounts }) => accounts)));
}

/**
 * Returns the sums of one account in each of the spans, for its chart. 0 in a span means that the account was
 * not among the busiest, not that it had no calls.
 */
export function accountSeries(
  spans: readonly AccountSpan[],
  id: string,
): { readonly start: number; readonly stats: Readonly<AccountStats> }[] {
  // Own members alone, because an object has a `constructor` too.
  return spans.map(({ start, accounts }) => ({
    start,
    stats: Object.hasOwn(accounts, id) ? accounts[id]! : noStats(),
  }));
}
