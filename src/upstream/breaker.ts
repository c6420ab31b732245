/**
 * A circuit breaker: keeps calls from an upstream that keeps failing. Each target of a model in each worker
 * has one (target-choice.ts). It judges by the calls of its worker alone: no shared word is touched for a
 * call, and each worker finds out for itself. Upstream worker.
 *
 *     closed ──(failures)──► open ──(cooldown is over)──► one call probes ──(response begins)──► closed
 *                             ▲                                │
 *                             └──(it fails: twice the cooldown)┘
 *
 * It opens after `failuresMax` failures in a row, or after as many within the window if they are half of its
 * calls or more. The cooldown assumes that other upstreams do the work; if none is left, `loneRestMs` is
 * shorter.
 *
 * Must hold: one call at a time probes, and outcomes of calls that began in an earlier state change nothing
 * (test/unit/upstream/breaker.test.ts).
 */
import type { MonotonicMs } from '../core/units.js';

/** The window is two halves; the older one is dropped as a whole. */
const WINDOW_HALF_MS = 5_000;
/**
 * First cooldown: a process that was restarted is back by then. A probe costs at most one caller a failed
 * attempt.
 */
const COOLDOWN_MS_MIN = 2_000;
/** An upstream that was down for hours serves again within a minute after it is back. */
const COOLDOWN_MS_MAX = 60_000;

/** If no other upstream is left, each refused call is lost: so long at most after the upstream is back. */
const LONE_COOLDOWN_MS_MAX = 5_000;

/** What happened; the cooldown that follows is passed with it. */
export type BreakerChange = 'opened' | 'reopened' | 'closed';

/** Identifies the state in which a call began: outcomes of calls of an earlier state are ignored. */
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
  /** When it opened, or when its last probe began. */
  #restedAtMs = 0;
  /** Counts state changes and probes. */
  #pass: BreakerPass = 0;

  /** With `failuresMax` 0 it never opens. */
  constructor(failuresMax: number, onChange: (change: BreakerChange, cooldownMs: number) => void) {
    this.#failuresMax = failuresMax;
    this.#onChange = onChange;
  }

  /** True also while a call probes. */
  get isOpen(): boolean {
    return this.#cooldownMs > 0;
  }

  /** Milliseconds until it lets a call through; 0 is now. */
  restMs(nowMs: MonotonicMs): number {
    return this.isOpen ? Math.max(0, this.#probeAtMs - nowMs) : 0;
  }

  /** As `restMs`, if no other upstream is left. */
  loneRestMs(nowMs: MonotonicMs): number {
    if (!this.isOpen) return 0;
    return Math.max(0, Math.min(this.#probeAtMs, this.#restedAtMs + LONE_COOLDOWN_MS_MAX) - nowMs);
  }

  /** Closes it at an operator's order; outcomes of running calls are ignored. */
  reset(): void {
    if (this.isOpen) this.#close();
  }

  /**
   * A call begins that `restMs` or `loneRestMs` allowed. While open, the call is the probe; if its response
   * does not come, another probe follows after a cooldown.
   */
  begin(nowMs: MonotonicMs): BreakerPass {
    if (this.isOpen) {
      this.#pass++;
      this.#restedAtMs = nowMs;
      this.#probeAtMs = nowMs + this.#cooldownMs;
    }
    return this.#pass;
  }

  /** A good response has begun. That is enough for a probe, which may be a stream of minutes. */
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

  /** The call ended and says nothing about the upstream; after a probe the next call probes. */
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
