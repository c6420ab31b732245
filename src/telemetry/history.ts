/**
 * Records how the stats changed over the last 24 hours, in rings of spans, for the charts of the console. The
 * finest ring covers the last minutes, the coarsest the whole day. gateway/history-recorder.ts fills them in
 * the process with the admin interface, on the main thread. The console loads this file in the browser, for
 * the shapes of the rings and the functions of growth. All times are whole Unix seconds.
 *
 *     ring    span     covers
 *     5m      2 s      5 minutes    only in memory
 *     1h      10 s     1 hour
 *     6h      1 min    6 hours
 *     24h     5 min    24 hours
 *
 * A span without a call is 34 bytes of JSON, one with ten busy models 4 KB, one with twenty, the most, 8 KB.
 * All rings together take 10 MB at worst.
 *
 * When a span of the ring `1h` is written to disk, the running spans of all rings on disk are written too,
 * incomplete. So a gateway that dies loses only its last 10 seconds, and the next gateway continues the
 * running spans.
 *
 * Must hold:
 * - Growth is never negative, also if sums begin at 0 again after a restart.
 * - Each ring has the calls of every run of the gateway, also of a run that is shorter than a span.
 * - HISTORY_RINGS go from the finest to the coarsest. The seconds of each ring are a multiple of those of the
 *   ring before, so that each span lies in one span of the next ring (top-accounts.ts).
 * - No two rings have the same seconds: store/history-rows.ts finds a ring by them.
 * - Nothing of Node is imported, because of the browser.
 */
import type { CallStats, StatusDocument } from './status-document.js';

interface RingShape {
  readonly seconds: number;
  readonly spans: number;
  /** Whether gateway/history-recorder.ts has the ring on disk too, so that it outlives the gateway. */
  readonly onDisk: boolean;
}

export const HISTORY_RINGS = {
  '5m': { seconds: 2, spans: 150, onDisk: false },
  '1h': { seconds: 10, spans: 360, onDisk: true },
  '6h': { seconds: 60, spans: 360, onDisk: true },
  '24h': { seconds: 300, spans: 288, onDisk: true },
} as const satisfies Readonly<Record<string, RingShape>>;

export type RingName = keyof typeof HISTORY_RINGS;
export const RING_NAMES = Object.keys(HISTORY_RINGS) as readonly RingName[];

/** How often gateway/history-recorder.ts reads the status: the span of the finest ring. */
export const HISTORY_PERIOD_SECONDS = HISTORY_RINGS['5m'].seconds;

/** `start` is in Unix seconds, a multiple of the ring's `seconds`. */
export interface Span {
  readonly start: number;
}

export interface SpanOfRing<OneSpan extends Span> {
  readonly ring: RingName;
  readonly span: OneSpan;
}

/**
 * A span that begins further in the future than this was recorded by a clock that was ahead, and is dropped.
 * If the clock was set back by less while the gateway runs, the spans stay, and no span is added until their
 * time has passed again.
 */
const AHEAD_SECONDS_MAX = 300;

/** Whether a span was recorded by a clock that was far ahead. */
export function isAhead(start: number, nowSeconds: number): boolean {
  return start > nowSeconds + AHEAD_SECONDS_MAX;
}

/** Ended spans of one ring, oldest first. A time in which no gateway ran has no spans. */
export class SpanRing<OneSpan extends Span> {
  readonly name: RingName;
  readonly shape: RingShape;
  readonly spans: OneSpan[] = [];

  constructor(name: RingName) {
    this.name = name;
    this.shape = HISTORY_RINGS[name];
  }

  /** Whether a span that begins at `start` follows the last one, is not in the future and is not too old. */
  isNew(start: number, nowSeconds: number): boolean {
    const { seconds, spans } = this.shape;
    return this.isLater(start) && start <= nowSeconds && start >= nowSeconds - seconds * spans;
  }

  /** Whether a span that begins at `start` follows the last one. */
  isLater(start: number): boolean {
    return start > (this.spans.at(-1)?.start ?? -Infinity);
  }

  /** Drops spans of a clock that was far ahead. Otherwise no span could be added until their time. */
  dropAhead(nowSeconds: number): void {
    while (isAhead(this.spans.at(-1)?.start ?? -Infinity, nowSeconds)) this.spans.pop();
  }

  /** Adds a span, which must be later than the last one, because readers need the order. Drops the oldest. */
  push(span: OneSpan): void {
    this.spans.push(span);
    if (this.spans.length > this.shape.spans) this.spans.shift();
  }
}

/** One ring of each length. History (below) and AccountHistory (account-history.ts) extend it. */
export abstract class Rings<OneSpan extends Span, Ring extends SpanRing<OneSpan>> {
  readonly #rings: ReadonlyMap<RingName, Ring>;

  constructor(ringOf: (name: RingName) => Ring) {
    this.#rings = new Map(RING_NAMES.map((name) => [name, ringOf(name)]));
  }

  /**
   * Adds spans that an earlier run of the gateway has stored, oldest first. Drops those that are too old, in
   * the future or out of order.
   */
  restore(ring: RingName, spans: readonly OneSpan[], nowSeconds: number): void {
    const target = this.ring(ring);
    for (const span of spans) if (target.isNew(span.start, nowSeconds)) target.push(span);
  }

  /** `!`: the constructor made a ring of each name. */
  protected ring(name: RingName): Ring {
    return this.#rings.get(name)!;
  }

  /** Returns the spans that `spansOf` gives for each ring. */
  protected each(spansOf: (ring: Ring) => readonly OneSpan[]): SpanOfRing<OneSpan>[] {
    return [...this.#rings.values()].flatMap((ring) =>
      spansOf(ring).map((span) => ({ ring: ring.name, span })),
    );
  }
}

/** What a history keeps of the status: sums since the start of the gateway, and calls in flight. */
export type StatusStats = CallStats & Pick<StatusDocument, 'calls_in_flight' | 'refusals' | 'models'>;

/**
 * By how much `CallStats` grew. Members that did not grow are left out, so that a span without calls is
 * small. The rows on disk and the console have these names.
 */
export interface CallGrowth {
  outcomes?: Record<string, number>;
  /** The cached tokens are a part of the prompt. */
  tokens?: [prompt: number, cached: number, completion: number];
  /** In units of the currency, as a float: exact enough for charts, not for bills. */
  cost?: number;
  /** Calls by duration: counts by the index of the histogram's bucket. `first_token` is alike. */
  duration?: Record<string, number>;
  first_token?: Record<string, number>;
}

interface StatusGrowth extends CallGrowth {
  refusals?: Record<string, number>;
  models?: Record<string, CallGrowth>;
}

export interface HistorySpan extends Span, StatusGrowth {
  /** The most calls in flight at any read of the status. */
  in_flight: number;
  /**
   * How many seconds of the span were recorded. Absent if all were. Present if a run of the gateway began or
   * ended within the span, or if the status was not read for a while.
   */
  seconds?: number;
}

export type EndedSpan = SpanOfRing<HistorySpan>;

export class History extends Rings<HistorySpan, StatusRing> {
  constructor() {
    super((name) => new StatusRing(name));
  }

  /**
   * Adds the current status; called every HISTORY_PERIOD_SECONDS. Returns the spans that ended since the last
   * call, each once. Takes 0.1 ms, or 0.2 ms with twenty models.
   */
  add(status: StatusStats, nowSeconds: number): EndedSpan[] {
    return this.each((ring) => ring.add(status, nowSeconds));
  }

  /** Returns the running spans, incomplete, for the disk. Changes nothing. */
  running(status: StatusStats, nowSeconds: number): EndedSpan[] {
    return this.each((ring) => ring.running(status, nowSeconds));
  }

  spans(ring: RingName): readonly HistorySpan[] {
    return this.ring(ring).spans;
  }
}

/** The status is read some milliseconds late, so a whole span may seem a second longer or shorter. */
const READ_LATE_SECONDS_MAX = 1;

/** The status with which a span began. The status was read at `atSeconds`: at `start` or later. */
interface SpanBegin {
  readonly start: number;
  readonly atSeconds: number;
  readonly status: StatusStats;
}

class StatusRing extends SpanRing<HistorySpan> {
  /** How the running span began; undefined before the first status. */
  #begin: SpanBegin | undefined;
  /** The most calls in flight at any read of the status in the running span. */
  #inFlightMax = 0;
  /** The running span as an earlier run of the gateway has stored it; undefined if none has. */
  #earlier: HistorySpan | undefined;

  /** Returns the running span if this status ends it; otherwise an empty list. */
  add(status: StatusStats, nowSeconds: number): HistorySpan[] {
    this.dropAhead(nowSeconds);
    const start = nowSeconds - (nowSeconds % this.shape.seconds);
    const begin = this.#begin;
    this.#inFlightMax = Math.max(this.#inFlightMax, status.calls_in_flight);
    if (begin?.start === start) return [];
    this.#begin = { start, atSeconds: nowSeconds, status };
    if (begin === undefined) {
      // The first status of this run. If an earlier run has stored the running span, that span is taken
      // out of the ring, and is added to the span that this run will push.
      const last = this.spans.at(-1);
      if (last?.start === start && last.seconds !== undefined) this.#earlier = this.spans.pop();
      return [];
    }
    const earlier = this.#earlier;
    this.#earlier = undefined;
    const { seconds, ...whole } = this.#spanOf(begin, earlier, status, nowSeconds);
    this.#inFlightMax = status.calls_in_flight;
    // If the clock was set back, the calls since `begin` belong to no span.
    if (begin.start > start) return [];
    // The ring has a span of this time already: an earlier run recorded it, or the clock was set back since.
    if (!this.isLater(whole.start)) return [];
    const isWhole = Math.abs(seconds - this.shape.seconds) <= READ_LATE_SECONDS_MAX;
    const span = isWhole ? whole : { ...whole, seconds };
    this.push(span);
    return [span];
  }

  /**
   * Returns the running span; an empty list if it has just begun, or if the ring has a later span. It has
   * `seconds` also in its last second: the next run continues a span only if it has them.
   */
  running(status: StatusStats, nowSeconds: number): HistorySpan[] {
    const begin = this.#begin;
    if (begin === undefined || begin.atSeconds >= nowSeconds || !this.isLater(begin.start)) return [];
    return [this.#spanOf(begin, this.#earlier, status, nowSeconds)];
  }

  #spanOf(
    { start, atSeconds, status: before }: SpanBegin,
    earlier: HistorySpan | undefined,
    status: StatusStats,
    nowSeconds: number,
  ): HistorySpan & { seconds: number } {
    const growth = growthOf(before, status);
    return {
      start,
      in_flight: Math.max(this.#inFlightMax, earlier?.in_flight ?? 0),
      seconds: nowSeconds - atSeconds + (earlier?.seconds ?? 0),
      ...(earlier === undefined ? growth : sumOf(earlier, growth)),
    };
  }
}

/** How many models a span names: those with most calls. Bounds the size of a span. */
const MODELS_MAX = 20;

/** Returns by how much each sum grew. */
function growthOf(before: StatusStats, after: StatusStats): StatusGrowth {
  const modelsBefore = new Map(before.models.map((model) => [model.id, model]));
  // Ranked by calls first, so that of a thousand models only twenty are compared in full.
  const models = after.models
    .map((model) => ({ model, calls: grownBy(callsOf(modelsBefore.get(model.id)), callsOf(model)) }))
    .filter(({ calls }) => calls > 0)
    .sort((first, second) => second.calls - first.calls)
    .slice(0, MODELS_MAX)
    .map(({ model }) => [model.id, callGrowthOf(modelsBefore.get(model.id), model)] as const);
  return withoutUndefined<StatusGrowth>({
    ...callGrowthOf(before, after),
    refusals: countsGrowth(before.refusals, after.refusals),
    models: models.length === 0 ? undefined : Object.fromEntries(models),
  });
}

/** Returns the sum of two growths: of two runs of the gateway within one span. */
function sumOf(first: StatusGrowth, second: StatusGrowth): StatusGrowth {
  const ids = new Set([...Object.keys(first.models ?? {}), ...Object.keys(second.models ?? {})]);
  const models = [...ids]
    .map((id) => [id, callSumOf(first.models?.[id] ?? {}, second.models?.[id] ?? {})] as const)
    .sort(([, model], [, nextModel]) => callsOf(nextModel) - callsOf(model))
    .slice(0, MODELS_MAX);
  return withoutUndefined<StatusGrowth>({
    ...callSumOf(first, second),
    refusals: countsSum(first.refusals, second.refusals),
    models: models.length === 0 ? undefined : Object.fromEntries(models),
  });
}

const NO_TOKENS: NonNullable<CallGrowth['tokens']> = [0, 0, 0];

function callSumOf(first: CallGrowth, second: CallGrowth): CallGrowth {
  const [prompt, cached, completion] = first.tokens ?? NO_TOKENS;
  const [morePrompt, moreCached, moreCompletion] = second.tokens ?? NO_TOKENS;
  const hasTokens = first.tokens !== undefined || second.tokens !== undefined;
  const cost = (first.cost ?? 0) + (second.cost ?? 0);
  return withoutUndefined<CallGrowth>({
    outcomes: countsSum(first.outcomes, second.outcomes),
    tokens: hasTokens ? [prompt + morePrompt, cached + moreCached, completion + moreCompletion] : undefined,
    cost: cost > 0 ? cost : undefined,
    duration: countsSum(first.duration, second.duration),
    first_token: countsSum(first.first_token, second.first_token),
  });
}

/** Adds up counts of the same name. Returns undefined if there are none. */
function countsSum(
  first: Readonly<Record<string, number>> = {},
  second: Readonly<Record<string, number>> = {},
): Record<string, number> | undefined {
  const names = [...new Set([...Object.keys(first), ...Object.keys(second)])];
  if (names.length === 0) return undefined;
  return Object.fromEntries(names.map((name) => [name, (first[name] ?? 0) + (second[name] ?? 0)]));
}

/** Returns the number of calls of all outcomes; 0 for undefined. */
function callsOf(stats: Pick<CallGrowth, 'outcomes'> | CallStats | undefined): number {
  return Object.values(stats?.outcomes ?? {}).reduce((sum, count) => sum + count, 0);
}

/** If `before` is undefined, all of `after` is growth. */
export function callGrowthOf(before: CallStats | undefined, after: CallStats): CallGrowth {
  const tokens = countsGrowth(before?.tokens, after.tokens);
  const cost = grownBy(Number(before?.cost ?? 0), Number(after.cost));
  return withoutUndefined<CallGrowth>({
    outcomes: countsGrowth(before?.outcomes, after.outcomes),
    tokens: tokens && [tokens.prompt ?? 0, tokens.cached ?? 0, tokens.completion ?? 0],
    cost: cost > 0 ? cost : undefined,
    duration: countsGrowth(before?.duration_ms.counts, after.duration_ms.counts),
    first_token: countsGrowth(before?.first_token_ms.counts, after.first_token_ms.counts),
  });
}

function withoutUndefined<Growth>(growth: { [Name in keyof Growth]: Growth[Name] | undefined }): Growth {
  return Object.fromEntries(Object.entries(growth).filter(([, value]) => value !== undefined)) as Growth;
}

type Counts = Readonly<Record<string, number>> | readonly number[];

/** Returns the growth of each count by its name or index; undefined if nothing grew. */
export function countsGrowth(before: Counts | undefined, after: Counts): Record<string, number> | undefined {
  const countsBefore = new Map(Object.entries(before ?? {}));
  const grown = Object.entries(after)
    .map(([name, count]) => [name, grownBy(countsBefore.get(name) ?? 0, count)] as const)
    .filter(([, count]) => count > 0);
  return grown.length === 0 ? undefined : Object.fromEntries(grown);
}

/** Returns the growth of a sum. A sum that fell has begun at 0 again, so all of `after` is growth. */
export function grownBy(before: number, after: number): number {
  return after < before ? after : after - before;
}
