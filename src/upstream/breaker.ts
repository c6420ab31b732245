/**
 * A circuit breaker: keeps calls from an upstream that keeps failing. target-choice.ts has one for each
 * target of a model. It counts the calls of its own worker only, so that a call touches no shared memory.
 * Upstream worker.
 *
 *     closed ──(failures)──► open ──(cooldown is over)──► one call probes ──(response begins)──► closed
 *                             ▲                                │
 *                             └──(it fails: twice the cooldown)┘
 *
 * It opens after `failuresMax` failures in a row, or after as many within the window if they are half of its
 * calls or more. The cooldown assumes that other upstreams serve the calls; if none is left, `loneWaitMs` is
 * shorter.
 *
 * If all of these failures were calls of one account, it opens for that account only, because its requests
 * may be the reason: some upstreams send 500 for a request that they cannot read. Calls of other accounts go
 * on and are counted anew: one failure of them opens it for all, unless one of their calls went well before.
 *
 * Must hold: one call at a time probes, and outcomes of calls that began in an earlier state change nothing
 * (test/unit/upstream/breaker.test.ts).
 */
import type { AccountIndex, MonotonicMs } from '../core/units.js';

/** The window consists of two halves. The older one is dropped as a whole. */
const WINDOW_HALF_MS = 5_000;
/** The first cooldown: a process that was restarted is back by then. */
const COOLDOWN_MS_MIN = 2_000;
/** The longest: an upstream that was down for hours gets calls again within a minute after it is back. */
const COOLDOWN_MS_MAX = 60_000;

/** The longest cooldown while no other upstream is left, because each call fails meanwhile. */
const LONE_COOLDOWN_MS_MAX = 5_000;

/** What happened to the breaker. The cooldown that follows is passed with it. */
export type BreakerChange = 'opened' | 'reopened' | 'closed';

/**
 * Identifies the state in which a call began: outcomes of calls of an earlier state are ignored. Negative for
 * a call of an account for which the open breaker is closed.
 */
export type BreakerPass = number;

/** The accounts whose calls failed: one, or several; undefined if none did. */
type Accounts = AccountIndex | 'several' | undefined;

interface Half {
  calls: number;
  failures: number;
  failed: Accounts;
}

const newHalf = (): Half => ({ calls: 0, failures: 0, failed: undefined });
const both = (one: Accounts, other: Accounts): Accounts =>
  one === undefined || one === other ? other : other === undefined ? one : 'several';

export class Breaker {
  readonly #failuresMax: number;
  readonly #onChange: (change: BreakerChange, cooldownMs: number) => void;
  #inARow = 0;
  #failedInARow: Accounts;
  #half = newHalf();
  #olderHalf = newHalf();
  /** The accounts for which it is open. */
  #heldBack: Accounts;
  #halfEndMs = 0;
  /** 0 while closed. */
  #cooldownMs = 0;
  #probeAtMs = 0;
  /** When it opened, or its last probe began. */
  #openedAtMs = 0;
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

  /** Milliseconds until a call of that account may begin; 0 is now. */
  waitMs(nowMs: MonotonicMs, account: AccountIndex): number {
    return this.#holdsBack(account) ? Math.max(0, this.#probeAtMs - nowMs) : 0;
  }

  /** As `waitMs`, if no other upstream is left. */
  loneWaitMs(nowMs: MonotonicMs, account: AccountIndex): number {
    if (!this.#holdsBack(account)) return 0;
    return Math.max(0, Math.min(this.#probeAtMs, this.#openedAtMs + LONE_COOLDOWN_MS_MAX) - nowMs);
  }

  /** Closes it at an operator's order; outcomes of running calls are ignored. */
  reset(): void {
    if (this.isOpen) this.#close();
  }

  /**
   * A call begins that `waitMs` or `loneWaitMs` allowed. If the breaker is open for its account, the call is
   * the probe; if its response does not come, another probe follows after a cooldown.
   */
  begin(nowMs: MonotonicMs, account: AccountIndex): BreakerPass {
    if (this.isOpen && !this.#holdsBack(account)) return -this.#pass;
    if (this.isOpen) {
      this.#pass++;
      this.#openedAtMs = nowMs;
      this.#probeAtMs = nowMs + this.#cooldownMs;
    }
    return this.#pass;
  }

  /**
   * A good response has begun. A probe, which may be a stream of minutes, need not end to close the breaker.
   */
  answered(pass: BreakerPass): void {
    if (pass === this.#pass && this.isOpen) this.#close();
  }

  /** The call ended well. */
  succeeded(pass: BreakerPass, nowMs: MonotonicMs): void {
    if (pass !== this.#pass && pass !== -this.#pass) return;
    if (this.isOpen && pass === this.#pass) this.#close();
    else this.#count(nowMs, undefined);
  }

  /** The call of that account failed, by a fault of the upstream. */
  failed(pass: BreakerPass, nowMs: MonotonicMs, account: AccountIndex): void {
    if ((pass !== this.#pass && pass !== -this.#pass) || this.#failuresMax === 0) return;
    if (this.isOpen && pass === this.#pass) {
      this.#open(nowMs, Math.min(COOLDOWN_MS_MAX, 2 * this.#cooldownMs), 'reopened');
      return;
    }
    this.#count(nowMs, account);
    const calls = this.#half.calls + this.#olderHalf.calls;
    const failures = this.#half.failures + this.#olderHalf.failures;
    const isTooMany = failures >= this.#failuresMax && 2 * failures >= calls;
    if (!isTooMany && this.#inARow < this.#failuresMax) return;
    const failed = isTooMany ? both(this.#half.failed, this.#olderHalf.failed) : this.#failedInARow;
    this.#heldBack = both(this.#heldBack, failed);
    this.#open(nowMs, COOLDOWN_MS_MIN, 'opened');
    // If it is open for one account, one failure of another one opens it for all.
    this.#countAnew(this.#failuresMax - 1);
  }

  /** The call ended and says nothing about the upstream. If it was the probe, the next call probes. */
  ended(pass: BreakerPass, nowMs: MonotonicMs): void {
    if (pass === this.#pass && this.isOpen) this.#probeAtMs = nowMs;
  }

  #holdsBack(account: AccountIndex): boolean {
    return this.isOpen && (this.#heldBack === 'several' || this.#heldBack === account);
  }

  #open(nowMs: MonotonicMs, cooldownMs: number, change: BreakerChange): void {
    this.#cooldownMs = cooldownMs;
    this.#openedAtMs = nowMs;
    this.#probeAtMs = nowMs + cooldownMs;
    this.#pass++;
    this.#onChange(change, cooldownMs);
  }

  #close(): void {
    this.#cooldownMs = 0;
    this.#pass++;
    this.#heldBack = undefined;
    this.#countAnew(0);
    this.#onChange('closed', 0);
  }

  #countAnew(inARow: number): void {
    this.#inARow = inARow;
    this.#failedInARow = undefined;
    this.#half = newHalf();
    this.#olderHalf = newHalf();
  }

  /** `failed`: the account of the call, if it failed. */
  #count(nowMs: MonotonicMs, failed: AccountIndex | undefined): void {
    if (nowMs >= this.#halfEndMs) {
      const isNext = nowMs < this.#halfEndMs + WINDOW_HALF_MS;
      this.#olderHalf = isNext ? this.#half : newHalf();
      this.#half = newHalf();
      this.#halfEndMs = nowMs + WINDOW_HALF_MS;
    }
    this.#half.calls++;
    if (failed === undefined) {
      this.#inARow = 0;
      this.#failedInARow = undefined;
      return;
    }
    this.#half.failures++;
    this.#half.failed = both(this.#half.failed, failed);
    this.#inARow++;
    this.#failedInARow = both(this.#failedInARow, failed);
  }
}
