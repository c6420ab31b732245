/**
 * The course of the figures over the last 24 hours, in rings of spans: the finest for the last minutes, the coarsest for the
 * whole day. Main thread of the gateway.
 *
 *     ring    span     covers
 *     5m      2 s      5 minutes    in memory alone
 *     1h      10 s     1 hour
 *     6h      1 min    6 hours
 *     24h     5 min    24 hours
 *
 * A span without a call is 34 bytes of JSON, a busy one with ten models 4 KB, with twenty, the most, 8 KB: 10 MB for all rings
 * at the worst.
 */
import type { CallStats, StatusDocument } from './status-document.js';

/*
 * The figures whose course is kept: sums since the start, as the status tells them, and what they grew by in a span of time.
 * Pure; main thread.
 */

/** What is read of the status. */
export type StatusStats = CallStats & Pick<StatusDocument, 'calls_in_flight' | 'refusals' | 'models'>;

/** Growth of `CallFigures`; what is nothing is left out, so that a quiet span is a small row. */
export interface CallGrowth {
  outcomes?: Record<string, number>;
  /** Prompt, cached and completion tokens. */
  tokens?: [number, number, number];
  /** In units of the currency: for charts and not for bills. */
  cost?: number;
  /** By the bucket's place in the histogram's bounds. */
  duration?: Record<string, number>;
  first_token?: Record<string, number>;
}

export interface StatusGrowth extends CallGrowth {
  refusals?: Record<string, number>;
  models?: Record<string, CallGrowth>;
}

/** Models of one span that have figures of their own, those with most calls. */
const MODELS_MAX = 20;

/** What came between two readings. A sum that fell began anew, so all of it came. */
export function growthOf(before: StatusStats | undefined, after: StatusStats): StatusGrowth {
  const growth: StatusGrowth = callGrowthOf(before, after);
  const refusals = countsGrowth(before?.refusals, after.refusals);
  if (refusals !== undefined) growth.refusals = refusals;
  const known = new Map(before?.models.map((model) => [model.id, model]));
  // Ranked before they are compared in full: of a thousand models twenty are.
  const models = after.models
    .map((model) => ({ model, calls: grownBy(callsOf(known.get(model.id)), callsOf(model)) }))
    .filter(({ calls }) => calls > 0)
    .sort((left, right) => right.calls - left.calls)
    .slice(0, MODELS_MAX)
    .map(({ model }) => [model.id, callGrowthOf(known.get(model.id), model)] as const);
  if (models.length > 0) growth.models = Object.fromEntries(models);
  return growth;
}

function callsOf(stats: CallStats | undefined): number {
  return Object.values(stats?.outcomes ?? {}).reduce((sum, count) => sum + count, 0);
}

function callGrowthOf(before: CallStats | undefined, after: CallStats): CallGrowth {
  const growth: CallGrowth = {};
  const outcomes = countsGrowth(before?.outcomes, after.outcomes);
  if (outcomes !== undefined) growth.outcomes = outcomes;
  const tokens = countsGrowth(before?.tokens, after.tokens);
  if (tokens !== undefined) {
    growth.tokens = [tokens.prompt ?? 0, tokens.cached ?? 0, tokens.completion ?? 0];
  }
  const cost = grownBy(Number(before?.cost ?? 0), Number(after.cost));
  if (cost > 0) growth.cost = cost;
  const duration = countsGrowth(before?.duration_ms.counts, after.duration_ms.counts);
  if (duration !== undefined) growth.duration = duration;
  const firstToken = countsGrowth(before?.first_token_ms.counts, after.first_token_ms.counts);
  if (firstToken !== undefined) growth.first_token = firstToken;
  return growth;
}

type Counts = Readonly<Record<string, number>> | readonly number[];

/** Undefined where nothing grew. */
function countsGrowth(before: Counts | undefined, after: Counts): Record<string, number> | undefined {
  const known = new Map(Object.entries(before ?? {}));
  const grown = Object.entries(after)
    .map(([name, count]) => [name, grownBy(known.get(name) ?? 0, count)] as const)
    .filter(([, count]) => count > 0);
  return grown.length === 0 ? undefined : Object.fromEntries(grown);
}

function grownBy(before: number, after: number): number {
  return after < before ? after : after - before;
}

export interface RingShape {
  readonly seconds: number;
  readonly spans: number;
  /** Whether it outlasts the gateway. */
  readonly kept: boolean;
}

export const HISTORY_RINGS = {
  '5m': { seconds: 2, spans: 150, kept: false },
  '1h': { seconds: 10, spans: 360, kept: true },
  '6h': { seconds: 60, spans: 360, kept: true },
  '24h': { seconds: 300, spans: 288, kept: true },
} as const satisfies Readonly<Record<string, RingShape>>;

export type RingName = keyof typeof HISTORY_RINGS;
export const RING_NAMES = Object.keys(HISTORY_RINGS) as readonly RingName[];

/** How often the figures are read: the finest ring's span. */
export const HISTORY_PERIOD_SECONDS = HISTORY_RINGS['5m'].seconds;

/** A span of time, and what came in it. */
export interface HistorySpan extends StatusGrowth {
  /** Unix seconds, a multiple of the ring's span. */
  readonly start: number;
  /** The most that were seen. */
  in_flight: number;
}

export interface EndedSpan {
  readonly ring: RingName;
  readonly span: HistorySpan;
}

export class History {
  readonly #rings = new Map<RingName, Ring>(RING_NAMES.map((name) => [name, new Ring(HISTORY_RINGS[name])]));

  /** Spans of an earlier life, in the order of their starts; those that are too old or not in order are left out. */
  restore(ring: RingName, spans: readonly HistorySpan[], nowSeconds: number): void {
    this.#rings.get(ring)!.restore(spans, nowSeconds);
  }

  /** Takes a reading in, and gives back the spans that ended with it. Some 0.1 ms, 0.2 with twenty models. */
  add(stats: StatusStats, nowSeconds: number): EndedSpan[] {
    return [...this.#rings].flatMap(([ring, spans]) => {
      const span = spans.add(stats, nowSeconds);
      return span === undefined ? [] : [{ ring, span }];
    });
  }

  /** Ended spans, oldest first; a time in which no gateway ran has none. */
  spans(ring: RingName): readonly HistorySpan[] {
    return this.#rings.get(ring)!.spans;
  }
}

class Ring {
  readonly #shape: RingShape;
  readonly #spans: HistorySpan[] = [];
  /** The reading at the start of the span that runs. */
  #first: { readonly start: number; readonly figures: StatusStats } | undefined;
  #inFlight = 0;

  constructor(shape: RingShape) {
    this.#shape = shape;
  }

  get spans(): readonly HistorySpan[] {
    return this.#spans;
  }

  restore(spans: readonly HistorySpan[], nowSeconds: number): void {
    const oldest = nowSeconds - this.#shape.seconds * this.#shape.spans;
    for (const span of spans) {
      const last = this.#spans.at(-1)?.start ?? -Infinity;
      if (span.start >= oldest && span.start > last && span.start <= nowSeconds) this.#spans.push(span);
    }
  }

  add(stats: StatusStats, nowSeconds: number): HistorySpan | undefined {
    const start = nowSeconds - (nowSeconds % this.#shape.seconds);
    const first = this.#first;
    this.#inFlight = Math.max(this.#inFlight, stats.calls_in_flight);
    if (first?.start === start) return undefined;
    this.#first = { start, figures: stats };
    // A clock that was set back: what was counted meanwhile belongs to no span that can follow.
    if (first === undefined || first.start > start) return undefined;
    const span = { start: first.start, in_flight: this.#inFlight, ...growthOf(first.figures, stats) };
    this.#inFlight = stats.calls_in_flight;
    // Those of a life that ended in this span have told of it already.
    if (span.start <= (this.#spans.at(-1)?.start ?? -Infinity)) return undefined;
    this.#spans.push(span);
    if (this.#spans.length > this.#shape.spans) this.#spans.shift();
    return span;
  }
}
