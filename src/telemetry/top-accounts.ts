/**
 * The top-accounts counter: calls, tokens and cost by account in this process. store/flush.ts calls `count`
 * once for each record of the journal. gateway/stats.ts calls `read`, which ends spans and reports the
 * busiest accounts of each. The sums of a span that ends are added to the next coarser span, in which the
 * span lies (history.ts). account-history.ts adds up the reports of all processes. Main thread.
 *
 *     count → 2 s → 10 s → 1 min → 5 min       the lengths of the history's rings
 *             ↓      ↓       ↓       ↓
 *            the busiest 50 of each, once it has ended
 *
 * Must hold: a call is in one span of each length. All processes of the host have the same starts of spans,
 * because they use its wall clock (test/unit/telemetry/account-history.test.ts).
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import type { AccountIndex } from '../core/units.js';
import {
  type AccountReport,
  type AccountStats,
  type AccountSpan,
  type AccountSpanOfRing,
  addStats,
  busiestOf,
} from './account-history.js';
import { HISTORY_RINGS, RING_NAMES, type RingName } from './history.js';

/** How many accounts a span counts. Calls of further accounts are left out. A full span takes 3 MB. */
const ACCOUNTS_COUNTED_MAX = 20_000;
const MS_PER_SECOND = 1_000;

/** What is counted of a journal record. Numbers of a `reversed` record are negative. */
export interface CountedCall {
  readonly account: AccountIndex;
  /** One of JOURNAL_OUTCOMES (ledger/journal-layout.ts). */
  readonly outcome: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly charged: bigint;
}

interface RunningSpan {
  readonly ring: RingName;
  /** Unix seconds. */
  start: number;
  sums: Map<AccountIndex, AccountStats>;
  /** The last span of this length that had a call and has ended; undefined before the first. */
  ended: AccountSpan | undefined;
}

export class TopAccounts {
  readonly #source = randomUUID();
  readonly #idOf: (account: AccountIndex) => string | null;
  readonly #clock: Clock;
  /** The finest first. */
  readonly #spans: readonly RunningSpan[];

  /** `idOf` returns null for an account without an id, which is left out of reports. */
  constructor(idOf: (account: AccountIndex) => string | null, clock: Clock) {
    this.#idOf = idOf;
    this.#clock = clock;
    this.#spans = RING_NAMES.map((ring) => ({
      ring,
      start: this.#startOf(ring),
      sums: new Map(),
      ended: undefined,
    }));
  }

  /** Counts a journal record in the running span of the finest ring. */
  count(call: CountedCall): void {
    const { sums } = this.#spans[0]!;
    if (sums.size >= ACCOUNTS_COUNTED_MAX && !sums.has(call.account)) return;
    addStats(sums, call.account, {
      // Records of these two outcomes correct the charge of an earlier record, which was counted as the call.
      calls: call.outcome === 'reversed' || call.outcome === 'collected' ? 0 : 1,
      prompt: call.promptTokens,
      cached: call.cachedTokens,
      completion: call.completionTokens,
      costPicoUnits: Number(call.charged),
    });
  }

  /**
   * Returns the last ended span of each length that had a call. Call it every 2 s: a span ends only when
   * `read` is called, so the span also has the records from between its end and that call.
   */
  read(): AccountReport {
    this.#spans.forEach((span, index) => {
      const start = this.#startOf(span.ring);
      if (start === span.start) return;
      if (span.sums.size > 0) {
        // The coarser span is the next of the loop. So if it ends now too, it has these sums.
        const coarser = this.#spans[index + 1];
        if (coarser !== undefined) addSums(span.sums, coarser.sums);
        span.ended = this.#snapshotOf(span);
        span.sums = new Map();
      }
      span.start = start;
    });
    return { source: this.#source, spans: this.#spansOfRings(({ ended }) => ended) };
  }

  /** Returns the ended spans as `read` does, and the running spans, for the report as the gateway ends. */
  readLast(): AccountReport {
    const { source, spans } = this.read();
    // The finest span comes first, so `sums` has those of all finer spans too when it comes to a coarser one.
    const sums = new Map<AccountIndex, AccountStats>();
    const runningSpans = this.#spansOfRings((span) => {
      addSums(span.sums, sums);
      return this.#snapshotOf({ start: span.start, sums });
    });
    return { source, spans: [...spans, ...runningSpans] };
  }

  /** Returns the span that `spanOf` gives for each ring; leaves out rings for which it is undefined. */
  #spansOfRings(spanOf: (running: RunningSpan) => AccountSpan | undefined): AccountSpanOfRing[] {
    return this.#spans.flatMap((running) => {
      const span = spanOf(running);
      return span === undefined ? [] : [{ ring: running.ring, span }];
    });
  }

  /** Copies the sums, because `count` may still add to those of a running span. */
  #snapshotOf({ start, sums }: Pick<RunningSpan, 'start' | 'sums'>): AccountSpan {
    const accounts = busiestOf(sums).flatMap(([account, stats]) => {
      const id = this.#idOf(account);
      return id === null ? [] : [[id, { ...stats }] as const];
    });
    return { start, accounts: Object.fromEntries(accounts) };
  }

  /** Returns the start of the current span, in Unix seconds: a multiple of the ring's seconds. */
  #startOf(ring: RingName): number {
    const nowSeconds = Math.floor(this.#clock.wallMs() / MS_PER_SECOND);
    return nowSeconds - (nowSeconds % HISTORY_RINGS[ring].seconds);
  }
}

/** If the coarser span counts ACCOUNTS_COUNTED_MAX accounts already, drops the sums of further ones. */
function addSums(
  finer: ReadonlyMap<AccountIndex, AccountStats>,
  coarser: Map<AccountIndex, AccountStats>,
): void {
  for (const [account, stats] of finer)
    if (coarser.size < ACCOUNTS_COUNTED_MAX || coarser.has(account)) addStats(coarser, account, stats);
}
