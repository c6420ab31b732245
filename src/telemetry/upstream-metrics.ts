/**
 * What an upstream worker counts of its upstreams, in its own stripe: see metrics-layout.ts. Upstream worker. Plain stores,
 * no allocation.
 */
import type { WallMs } from '../core/units.js';
import {
  BREAKER_STATES,
  FAILURE_KINDS,
  DISBELIEF_REASONS,
  UPSTREAM_ATTEMPTS,
  UPSTREAM_BREAKER,
  UPSTREAM_DISBELIEVED,
  UPSTREAM_FAILED_AT,
  UPSTREAM_FAILED_KIND,
  UPSTREAM_FAILURES,
  UPSTREAM_IN_FLIGHT,
  UPSTREAM_RETRIES,
  UPSTREAM_SLOTS_MAX,
  UPSTREAM_STRIPE_WORDS,
  openStripe,
  upstreamAt,
  type BreakerState,
  type DisbeliefReason,
  type FailureKind,
  type MetricsBuffers,
} from './metrics-layout.js';

/** All methods take the slot that the main thread gave the upstream: see UpstreamNames. */
export class UpstreamMetrics {
  readonly #words: Float64Array;

  /** Of the worker of that index. Calls of a worker that died in this one's place are gone. */
  constructor(buffers: MetricsBuffers, workerIndex: number) {
    this.#words = openStripe(buffers.upstreams, workerIndex, UPSTREAM_STRIPE_WORDS);
    for (let slot = 0; slot < UPSTREAM_SLOTS_MAX; slot += 1) {
      const at = upstreamAt(slot);
      // A store would make the kernel give a page to each block.
      if (this.#words[at + UPSTREAM_ATTEMPTS] !== 0) this.#words[at + UPSTREAM_IN_FLIGHT] = 0;
    }
  }

  /** An attempt begins; `retry` where an earlier one of the same call has failed. */
  attemptBegun(slot: number, retry: boolean): void {
    const at = upstreamAt(slot);
    this.#words[at + UPSTREAM_ATTEMPTS]! += 1;
    this.#words[at + UPSTREAM_IN_FLIGHT]! += 1;
    if (retry) this.#words[at + UPSTREAM_RETRIES]! += 1;
  }

  attemptEnded(slot: number): void {
    this.#words[upstreamAt(slot) + UPSTREAM_IN_FLIGHT]! -= 1;
  }

  countFailure(slot: number, kind: FailureKind, nowMs: WallMs): void {
    const at = upstreamAt(slot);
    const kindIndex = FAILURE_KINDS.indexOf(kind);
    this.#words[at + UPSTREAM_FAILURES + kindIndex]! += 1;
    // Two stores: a reader between them may take the moment of this failure for that of the one before.
    this.#words[at + UPSTREAM_FAILED_KIND] = kindIndex;
    this.#words[at + UPSTREAM_FAILED_AT] = nowMs;
  }

  /** The usage that it reported was not believed. */
  countDisbelieved(slot: number, reason: DisbeliefReason): void {
    this.#words[upstreamAt(slot) + UPSTREAM_DISBELIEVED + DISBELIEF_REASONS.indexOf(reason)]! += 1;
  }

  setBreaker(slot: number, state: BreakerState): void {
    this.#words[upstreamAt(slot) + UPSTREAM_BREAKER] = BREAKER_STATES.indexOf(state);
  }
}
