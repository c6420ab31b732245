/**
 * Leaves an upstream alone that keeps failing. Upstream worker; one breaker for each upstream of a model, so it judges by the
 * calls of this worker alone: no shared word is touched on the way of a call, and each worker finds out for itself.
 *
 *     closed ──(failures)──► open ──(its rest is over)──► one call probes ──(it is answered)──► closed
 *                             ▲                                │
 *                             └───(it fails: twice the rest)───┘
 *
 * It opens after so many failures in a row, or as many within the window where they are half of its calls or more. A rest is for the time
 * that others do the work: where no other upstream is left, `loneRestMs` is shorter.
 */
import type { MonotonicMs } from '../core/units.js';

/** The window is two halves, of which the older is dropped as a whole. */
const WINDOW_HALF_MS = 5_000;
/** First rest: a process that was restarted is back by then. A probe costs one caller a failed try at most. */
const COOLDOWN_MS_MIN = 2_000;
/** An upstream that was down for hours serves again a minute after it is back. */
const COOLDOWN_MS_MAX = 60_000;

/** Where nobody else takes the calls, each refused one is lost: so long at most after the upstream is back. */
export const LONE_COOLDOWN_MS_MAX = 5_000;

/** What happened, with the rest that follows. */
export type BreakerChange = 'opened' | 'reopened' | 'closed';

/** Names a call to its breaker: what a call of an earlier state says is not heard. */
export type BreakerPass = number;

export class Breaker {
  readonly #failuresMax: number;
  readonly #onChange: (change: BreakerChange, cooldownMs: number) => void;
  #inARow = 0;
  #half = { calls: 0, failures: 0 };
  #olderHalf = { calls: 0, failures: 0 };
  #halfEndMs = 0;
  /** 0 while closed. */
  #cooldownMs = 0;
  #probeAtMs = 0;
  /** When it opened, or its last probe began. */
  #restedAtMs = 0;
  /** Counts states and probes. */
  #pass: BreakerPass = 0;

  /** `failuresMax` 0: it never opens. */
  constructor(failuresMax: number, onChange: (change: BreakerChange, cooldownMs: number) => void) {
    this.#failuresMax = failuresMax;
    this.#onChange = onChange;
  }

  /** Also while a call probes. */
  get isOpen(): boolean {
    return this.#cooldownMs > 0;
  }

  /** How long until it lets a call through; 0 is now. */
  restMs(nowMs: MonotonicMs): number {
    return this.isOpen ? Math.max(0, this.#probeAtMs - nowMs) : 0;
  }

  /** As `restMs`, where no other upstream is left. */
  loneRestMs(nowMs: MonotonicMs): number {
    if (!this.isOpen) return 0;
    return Math.max(0, Math.min(this.#probeAtMs, this.#restedAtMs + LONE_COOLDOWN_MS_MAX) - nowMs);
  }

  /** An operator says that the upstream is well; calls that run are not heard. */
  reset(): void {
    if (this.isOpen) this.#close();
  }

  /** A call begins, which `restMs` or `loneRestMs` allowed. While open it is the probe; if it stays without a response, another follows after a rest. */
  begin(nowMs: MonotonicMs): BreakerPass {
    if (this.isOpen) {
      this.#pass++;
      this.#restedAtMs = nowMs;
      this.#probeAtMs = nowMs + this.#cooldownMs;
    }
    return this.#pass;
  }

  /** The upstream has begun to answer well: enough of a probe, which may be a stream of minutes. */
  answered(pass: BreakerPass): void {
    if (pass === this.#pass && this.isOpen) this.#close();
  }

  /** The call ended well. */
  succeeded(pass: BreakerPass, nowMs: MonotonicMs): void {
    if (pass !== this.#pass) return;
    if (this.isOpen) this.#close();
    else this.#count(nowMs, 0);
  }

  failed(pass: BreakerPass, nowMs: MonotonicMs): void {
    if (pass !== this.#pass || this.#failuresMax === 0) return;
    if (this.isOpen) {
      this.#open(nowMs, Math.min(COOLDOWN_MS_MAX, 2 * this.#cooldownMs), 'reopened');
      return;
    }
    this.#count(nowMs, 1);
    const calls = this.#half.calls + this.#olderHalf.calls;
    const failures = this.#half.failures + this.#olderHalf.failures;
    const isTooMany = failures >= this.#failuresMax && 2 * failures >= calls;
    if (isTooMany || this.#inARow >= this.#failuresMax) this.#open(nowMs, COOLDOWN_MS_MIN, 'opened');
  }

  /** The call ended without a word about the upstream; after a probe the next call is one. */
  ended(pass: BreakerPass, nowMs: MonotonicMs): void {
    if (pass === this.#pass && this.isOpen) this.#probeAtMs = nowMs;
  }

  #open(nowMs: MonotonicMs, cooldownMs: number, change: BreakerChange): void {
    this.#cooldownMs = cooldownMs;
    this.#restedAtMs = nowMs;
    this.#probeAtMs = nowMs + cooldownMs;
    this.#pass++;
    this.#onChange(change, cooldownMs);
  }

  #close(): void {
    this.#cooldownMs = 0;
    this.#pass++;
    this.#inARow = 0;
    this.#half = { calls: 0, failures: 0 };
    this.#olderHalf = { calls: 0, failures: 0 };
    this.#onChange('closed', 0);
  }

  #count(nowMs: MonotonicMs, failures: 0 | 1): void {
    if (nowMs >= this.#halfEndMs) {
      const isNext = nowMs < this.#halfEndMs + WINDOW_HALF_MS;
      this.#olderHalf = isNext ? this.#half : { calls: 0, failures: 0 };
      this.#half = { calls: 0, failures: 0 };
      this.#halfEndMs = nowMs + WINDOW_HALF_MS;
    }
    this.#half.calls++;
    this.#half.failures += failures;
    this.#inARow = failures === 0 ? 0 : this.#inARow + 1;
  }
}
