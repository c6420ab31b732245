/**
 * The top-accounts counter: calls, tokens and cost by account in this process. The flush (store/flush.ts)
 * calls `note` once for each record of the journal, which is counted in the current finest span. An ended
 * span is added to the next coarser one, in which it lies (history.ts). gateway/stats.ts reads the report,
 * which has the busiest accounts of the last ended span of each length; account-history.ts adds up the
 * reports of all processes. Main thread.
 *
 *     note → 2 s → 10 s → 1 min → 5 min       the lengths of the history's rings
 *             ↓      ↓       ↓       ↓
 *            the busiest 50 of each, once it has ended
 *
 * Must hold: a call is in one span of each length; ends of spans are those of the other processes of the
 * host, because all use its wall clock (test/unit/telemetry/account-history.test.ts).
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import type { AccountIndex } from '../core/units.js';
import {
  type AccountReport,
  type AccountStats,
  type AccountSpan,
  type AccountSpanOfRing,
  addTo,
  busiestOf,
} from './account-history.js';
import { HISTORY_RINGS, RING_NAMES, type RingName } from './history.js';

/** How many accounts a span counts, 3 MB for the longest. Further accounts are left out. */
const ACCOUNTS_COUNTED_MAX = 20_000;
const MS_PER_SECOND = 1_000;

/** The part of a journal's record that is counted. */
export interface CountedCall {
  readonly account: AccountIndex;
  readonly outcome: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly charged: bigint;
}

interface RunningSpan {
  readonly ring: RingName;
  start: number;
  sums: Map<AccountIndex, AccountStats>;
  ended: AccountSpan | undefined;
}

export class TopAccounts {
  readonly #source = randomUUID();
  readonly #idOf: (account: AccountIndex) => string | null;
  readonly #clock: Clock;
  /** The finest first. */
  readonly #spans: readonly RunningSpan[];

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

  /** Counts a record of the journal in the current span. One map lookup. */
  note(call: CountedCall): void {
    const { sums } = this.#spans[0]!;
    if (sums.size >= ACCOUNTS_COUNTED_MAX && !sums.has(call.account)) return;
    addTo(sums, call.account, {
      // A record that takes back a charge, or adds to it, is not a call.
      calls: call.outcome === 'reversed' || call.outcome === 'collected' ? 0 : 1,
      prompt: call.promptTokens,
      cached: call.cachedTokens,
      completion: call.completionTokens,
      costPicoUnits: Number(call.charged),
    });
  }

  /**
   * Returns the last ended span of each length that had a call. To be called as often as the finest span
   * ends: a span ends at this call, so records that are counted late are in it.
   */
  read(): AccountReport {
    this.#spans.forEach((span, index) => {
      const start = this.#startOf(span.ring);
      if (start === span.start) return;
      if (span.sums.size > 0) {
        // The coarser span comes after this one here, so it gets these sums even if it ends now too.
        const coarser = this.#spans[index + 1];
        if (coarser !== undefined) addSums(span.sums, coarser.sums);
        span.ended = this.#snapshotOf(span);
        span.sums = new Map();
      }
      span.start = start;
    });
    return { source: this.#source, spans: this.#reported(({ ended }) => ended) };
  }

  /**
   * As `read`, and with the current spans as they are. To be called once, at the end: it changes the sums.
   */
  readLast(): AccountReport {
    const { source, spans } = this.read();
    this.#spans.slice(0, -1).forEach(({ sums }, index) => addSums(sums, this.#spans[index + 1]!.sums));
    return { source, spans: [...spans, ...this.#reported((span) => this.#snapshotOf(span))] };
  }

  #reported(pick: (span: RunningSpan) => AccountSpan | undefined): AccountSpanOfRing[] {
    return this.#spans.flatMap((running) => {
      const span = pick(running);
      return span === undefined ? [] : [{ ring: running.ring, span }];
    });
  }

  #snapshotOf({ start, sums }: RunningSpan): AccountSpan {
    const known = busiestOf(sums).flatMap(([account, stats]) => {
      const id = this.#idOf(account);
      return id === null ? [] : [[id, { ...stats }] as const];
    });
    return { start, accounts: Object.fromEntries(known) };
  }

  #startOf(ring: RingName): number {
    const nowSeconds = Math.floor(this.#clock.wallMs() / MS_PER_SECOND);
    return nowSeconds - (nowSeconds % HISTORY_RINGS[ring].seconds);
  }
}

function addSums(
  finer: ReadonlyMap<AccountIndex, AccountStats>,
  coarser: Map<AccountIndex, AccountStats>,
): void {
  for (const [account, stats] of finer)
    if (coarser.size < ACCOUNTS_COUNTED_MAX || coarser.has(account)) addTo(coarser, account, stats);
}
