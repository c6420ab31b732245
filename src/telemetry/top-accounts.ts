/**
 * What each account has called lately, in this process: every call is added once, to the finest span that runs; an ended span
 * is added to the next coarser one. Told are the busiest accounts of the last ended span of each length. Main thread.
 *
 *     note → 2 s → 10 s → 1 min → 5 min       the lengths of the history's rings
 *             ↓      ↓       ↓       ↓
 *            the busiest 50 of each, once it has ended
 */
import { randomUUID } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import type { AccountIndex } from '../core/units.js';
import {
  type AccountStats,
  type AccountSpan,
  type AccountSpanOfRing,
  addTo,
  busiestOf,
} from './account-history.js';
import { HISTORY_RINGS, RING_NAMES, type RingName } from './history.js';

/** Accounts that are counted in one span: five minutes' worth of 20,000 are 3 MB; those that come after them are not in it. */
const ACCOUNTS_COUNTED_MAX = 20_000;
const MS_PER_SECOND = 1_000;

/** As the journal has it. */
export interface NotedCall {
  readonly account: AccountIndex;
  readonly outcome: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly charged: bigint;
}

/** What one process says; plain, for the channel between processes. Said again it changes nothing. */
export interface AccountReport {
  /** Text that no other process has. */
  readonly source: string;
  /** Those of a ring in the order of their starts. */
  readonly spans: readonly AccountSpanOfRing[];
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

  /** Counts a call in the span that runs. One look into a map. */
  note(call: NotedCall): void {
    const { sums } = this.#spans[0]!;
    if (sums.size >= ACCOUNTS_COUNTED_MAX && !sums.has(call.account)) return;
    addTo(sums, call.account, {
      // What takes back a call's charge, or adds to it, is no call.
      calls: call.outcome === 'reversed' || call.outcome === 'collected' ? 0 : 1,
      prompt: call.promptTokens,
      cached: call.cachedTokens,
      completion: call.completionTokens,
      costPicoUnits: Number(call.charged),
    });
  }

  /** The last ended span of each length in which there was a call. To be asked as often as the finest ends. */
  read(): AccountReport {
    this.#spans.forEach((span, index) => {
      const start = this.#startOf(span.ring);
      if (start === span.start) return;
      if (span.sums.size > 0) {
        const coarser = this.#spans[index + 1];
        if (coarser !== undefined) hand(span.sums, coarser.sums);
        span.ended = this.#pictureOf(span);
        span.sums = new Map();
      }
      span.start = start;
    });
    return { source: this.#source, spans: this.#told(({ ended }) => ended) };
  }

  /** Before the end: those that run too, as far as they have come. */
  readLast(): AccountReport {
    const { source, spans } = this.read();
    this.#spans.slice(0, -1).forEach(({ sums }, index) => hand(sums, this.#spans[index + 1]!.sums));
    return { source, spans: [...spans, ...this.#told((span) => this.#pictureOf(span))] };
  }

  #told(pick: (span: RunningSpan) => AccountSpan | undefined): AccountSpanOfRing[] {
    return this.#spans.flatMap((running) => {
      const span = pick(running);
      return span === undefined ? [] : [{ ring: running.ring, span }];
    });
  }

  #pictureOf({ start, sums }: RunningSpan): AccountSpan {
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

function hand(from: ReadonlyMap<AccountIndex, AccountStats>, to: Map<AccountIndex, AccountStats>): void {
  for (const [account, stats] of from) {
    if (to.size < ACCOUNTS_COUNTED_MAX || to.has(account)) addTo(to, account, stats);
  }
}
