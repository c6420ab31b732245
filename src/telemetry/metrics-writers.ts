/**
 * Counts what the threads that serve calls do, each in its own stripe of the shared metrics
 * (metrics-layout.ts). request/listener.thread.ts makes the ListenerMetrics of its thread, and
 * upstream/upstream-task.ts the UpstreamMetrics. The main thread reads the counts (metrics-reader.ts).
 *
 * Must hold:
 * - Only the thread that owns a stripe writes it, because nothing here is atomic.
 * - No two counters share a word (test/unit/telemetry/metrics-layout.test.ts).
 * - Nothing is allocated here, because each call is counted here several times.
 */
import type { WallMs } from '../core/units.js';
import { DOOR_NAMES, DOOR_PATHS, type DoorPath } from '../core/door-names.js';
import type { TokenCounts } from '../core/token-counts.js';
import { observe } from './histogram.js';
import * as layout from './metrics-layout.js';

/** `modelSlot`: what `modelSlotOf` returns, NO_MODEL or OTHER_MODEL. `!`: all words are in the stripe. */
export class ListenerMetrics {
  readonly #words: Float64Array;

  /** Continues the counts of a dead listener with this index, but without calls in flight and cache. */
  constructor(buffers: layout.MetricsBuffers, listenerIndex: number) {
    this.#words = layout.openStripe(buffers.listeners, listenerIndex, layout.LISTENER_STRIPE_WORDS);
    this.#words[layout.IN_FLIGHT] = 0;
    this.setCache(0, 0);
  }

  /** Call it when a call was given to a worker. */
  callBegun(): void {
    this.#words[layout.IN_FLIGHT]! += 1;
  }

  /** Call it when the call's worker has sent its last frame: once for each `callBegun`. */
  callEnded(): void {
    this.#words[layout.IN_FLIGHT]! -= 1;
  }

  /**
   * Counts the end of a request. If `route` is the path of a door, the request is a call whose model is
   * unknown or does not matter, and it is counted in the slot NO_MODEL.
   */
  countRequest(route: layout.Route, outcome: layout.Outcome): void {
    const index = layout.OTHER_ROUTES.indexOf(route as layout.OtherRoute);
    const isBroken = false;
    if (index < 0) this.countCall(layout.NO_MODEL, outcome, isBroken, DOOR_ROUTES.indexOf(route as DoorPath));
    else this.#words[layout.ROUTES + index * layout.OUTCOMES.length + layout.OUTCOMES.indexOf(outcome)]! += 1;
  }

  /**
   * Counts the end of a call. `isBroken`: the response had begun with 200 before the call failed. `door`: the
   * position in DOOR_NAMES.
   */
  countCall(modelSlot: number, outcome: layout.Outcome, isBroken: boolean, door: number): void {
    const firstWord = layout.firstWordOfDoor(modelSlot, door) + (isBroken ? layout.OUTCOMES.length : 0);
    this.#words[firstWord + layout.OUTCOMES.indexOf(outcome)]! += 1;
  }

  countRejection(reason: layout.RejectionReason): void {
    this.#words[layout.REJECTIONS + layout.REJECTION_REASONS.indexOf(reason)]! += 1;
  }

  /**
   * Counts a charged call under the model that answered. `chargedPicoUnits` is what the account paid,
   * `uncoveredPicoUnits` what its balance did not cover; neither is negative.
   */
  countUsage(
    modelSlot: number,
    tokens: TokenCounts,
    chargedPicoUnits: bigint,
    uncoveredPicoUnits: bigint,
  ): void {
    const words = this.#words;
    const block = layout.firstWordOfModel(modelSlot);
    observe(words, block + layout.MODEL_INPUT, layout.TOKENS_BOUNDS, tokens.promptTokens);
    observe(words, block + layout.MODEL_OUTPUT, layout.TOKENS_BOUNDS, tokens.completionTokens);
    words[block + layout.MODEL_CACHED_TOKENS]! += tokens.cachedTokens;
    words[block + layout.MODEL_CACHE_WRITE_TOKENS]! += tokens.cacheWriteTokens;
    words[block + layout.MODEL_REASONING_TOKENS]! += tokens.reasoningTokens;
    words[block + layout.MODEL_COST]! += Number(chargedPicoUnits / layout.COST_PART);
    words[block + layout.MODEL_COST_REST]! += Number(chargedPicoUnits % layout.COST_PART);
    if (uncoveredPicoUnits === 0n) return;
    words[block + layout.MODEL_UNCOVERED]! += Number(uncoveredPicoUnits / layout.COST_PART);
    words[block + layout.MODEL_UNCOVERED_REST]! += Number(uncoveredPicoUnits % layout.COST_PART);
  }

  /** Counts a call that names one model and was answered by another. */
  countFallback(namedSlot: number, answeredSlot: number): void {
    this.#words[layout.firstWordOfModel(namedSlot) + layout.MODEL_FALLEN_BACK]! += 1;
    this.#words[layout.firstWordOfModel(answeredSlot) + layout.MODEL_STOOD_IN]! += 1;
  }

  countCacheHit(modelSlot: number): void {
    this.#words[layout.firstWordOfModel(modelSlot) + layout.MODEL_CACHE_HITS]! += 1;
  }

  countCacheMiss(modelSlot: number): void {
    this.#words[layout.firstWordOfModel(modelSlot) + layout.MODEL_CACHE_MISSES]! += 1;
  }

  /** Counts a cached response that was removed to free memory for another. */
  countCacheEviction(): void {
    this.#words[layout.CACHE_EVICTIONS]! += 1;
  }

  /** Sets how many cached responses, and bytes of them, the listener's memory has. */
  setCache(entries: number, bytes: number): void {
    this.#words[layout.CACHE_ENTRIES] = entries;
    this.#words[layout.CACHE_BYTES] = bytes;
  }

  /** Counts the duration of a successful call. The two methods below count other times of such a call. */
  observeDuration(modelSlot: number, durationMs: number): void {
    const firstWord = layout.firstWordOfModel(modelSlot) + layout.MODEL_DURATION;
    observe(this.#words, firstWord, layout.DURATION_BOUNDS_MS, durationMs);
  }

  observeFirstToken(modelSlot: number, firstTokenMs: number): void {
    const firstWord = layout.firstWordOfModel(modelSlot) + layout.MODEL_FIRST_TOKEN;
    observe(this.#words, firstWord, layout.FIRST_TOKEN_BOUNDS_MS, firstTokenMs);
  }

  observeOverhead(isStream: boolean, overheadMs: number): void {
    const firstWord = isStream ? layout.OVERHEAD_STREAM : layout.OVERHEAD_WHOLE;
    observe(this.#words, firstWord, layout.OVERHEAD_BOUNDS_MS, overheadMs);
  }
}

/** Paths by position in DOOR_NAMES. */
const DOOR_ROUTES = DOOR_NAMES.map((name) => DOOR_PATHS[name]);

/** `slot`: the number that UpstreamNames (upstream-names.ts) gave the upstream of one model. */
export class UpstreamMetrics {
  readonly #words: Float64Array;

  /** Continues the counts of a dead worker with this index, but with no attempt in flight and no wait. */
  constructor(buffers: layout.MetricsBuffers, workerIndex: number) {
    this.#words = layout.openStripe(buffers.upstreams, workerIndex, layout.UPSTREAM_STRIPE_WORDS);
    const words = this.#words;
    for (let slot = 0; slot < layout.UPSTREAM_SLOTS_MAX; slot += 1) {
      const block = layout.firstWordOfUpstream(slot);
      // Words that were never written stay so, because a store makes the kernel allocate the page.
      if (words[block + layout.UPSTREAM_ATTEMPTS] !== 0) words[block + layout.UPSTREAM_IN_FLIGHT] = 0;
      if (words[block + layout.UPSTREAM_WAITING] !== 0) words[block + layout.UPSTREAM_WAITING] = 0;
    }
  }

  /** Call it when an attempt begins. `isRetry`: an earlier attempt of the same call has failed. */
  attemptBegun(slot: number, isRetry: boolean): void {
    const block = layout.firstWordOfUpstream(slot);
    this.#words[block + layout.UPSTREAM_ATTEMPTS]! += 1;
    this.#words[block + layout.UPSTREAM_IN_FLIGHT]! += 1;
    if (isRetry) this.#words[block + layout.UPSTREAM_RETRIES]! += 1;
  }

  /** Call it once for each `attemptBegun`. */
  attemptEnded(slot: number): void {
    this.#words[layout.firstWordOfUpstream(slot) + layout.UPSTREAM_IN_FLIGHT]! -= 1;
  }

  countFailure(slot: number, kind: layout.FailureKind, nowMs: WallMs): void {
    const block = layout.firstWordOfUpstream(slot);
    const kindIndex = layout.FAILURE_KINDS.indexOf(kind);
    this.#words[block + layout.UPSTREAM_FAILURES + kindIndex]! += 1;
    // A reader between these two stores shows this failure's kind with the time of the failure before.
    this.#words[block + layout.UPSTREAM_FAILED_KIND] = kindIndex;
    this.#words[block + layout.UPSTREAM_FAILED_AT] = nowMs;
  }

  /** Call it when a call begins to wait for the limits of its upstreams; `slot` is that of one of them. */
  waitBegun(slot: number): void {
    this.#words[layout.firstWordOfUpstream(slot) + layout.UPSTREAM_WAITING]! += 1;
  }

  /** Call it once for each `waitBegun`, with its slot. `isRejected`: no upstream had capacity in time. */
  waitEnded(slot: number, waitedMs: number, isRejected: boolean): void {
    const block = layout.firstWordOfUpstream(slot);
    this.#words[block + layout.UPSTREAM_WAITING]! -= 1;
    this.#words[block + layout.UPSTREAM_WAITS]! += 1;
    this.#words[block + layout.UPSTREAM_WAITED_MS]! += waitedMs;
    if (isRejected) this.#words[block + layout.UPSTREAM_WAITS_REJECTED]! += 1;
  }

  /** Counts a report of usage that was not believed. */
  countDisbelieved(slot: number, reason: layout.DisbeliefReason): void {
    const firstWord = layout.firstWordOfUpstream(slot) + layout.UPSTREAM_DISBELIEVED;
    this.#words[firstWord + layout.DISBELIEF_REASONS.indexOf(reason)]! += 1;
  }

  /** Counts a call whose client left after the request was sent, by how the upstream's response ended. */
  countLeft(slot: number, end: layout.EndWithoutClient): void {
    this.#words[
      layout.firstWordOfUpstream(slot) +
        layout.UPSTREAM_CLIENTS_LEFT +
        layout.ENDS_WITHOUT_CLIENT.indexOf(end)
    ]! += 1;
  }

  /** Sets the breaker's state. `cooldownEndMs`: when the next call may probe; only for an open breaker. */
  setBreaker(slot: number, state: layout.BreakerState, cooldownEndMs = 0): void {
    const block = layout.firstWordOfUpstream(slot);
    this.#words[block + layout.UPSTREAM_COOLDOWN_END] = cooldownEndMs;
    this.#words[block + layout.UPSTREAM_BREAKER] = layout.BREAKER_STATES.indexOf(state);
  }
}
