/**
 * A circuit breaker: keeps calls away from an upstream that fails again and again. target-choice.ts has a
 * breaker for each target of a model. A breaker counts the calls of its own worker only, so that a call
 * touches no shared memory. Upstream worker.
 *
 *     closed ──(failures)──► open ──(cooldown is over)──► one call probes ──(response begins)──► closed
 *                             ▲                                │
 *                             └──(it fails: twice the cooldown)┘
 *
 * A breaker opens after `failuresMax` failures in a row, or after `failuresMax` failures within two periods
 * (PERIOD_MS) if they are half or more of the calls in them. `waitMs` assumes that other upstreams serve
 * calls meanwhile. If there is no other upstream, `loneWaitMs` is shorter.
 *
 * If all of these failures were calls of one account, the breaker opens for that account only, because the
 * account's requests may be the reason: some upstreams send 500 for a request that they cannot read. Calls of
 * other accounts go on and are counted from 0. If the first of these calls to end fails, the breaker opens
 * for all accounts. If that call goes well, `failuresMax` failures are needed again.
 *
 * Must hold: one call at a time probes. Outcomes of calls that began in an earlier state change nothing.
 */
import type { AccountIndex, MonotonicMs } from '../core/units.js';

/** Calls are counted in periods. The current period counts, and the former one. */
const PERIOD_MS = 5_000;
/** The first cooldown: an upstream that restarts its process is back by then. */
const COOLDOWN_MS_MIN = 2_000;
/** The longest cooldown: an upstream that was down for hours gets calls within a minute after it is back. */
const COOLDOWN_MS_MAX = 60_000;

/** The longest cooldown while no other upstream is left, because each call fails meanwhile. */
const LONE_COOLDOWN_MS_MAX = 5_000;

/** A change of the breaker, for `onChange`, with the cooldown that follows: 0 if the breaker has closed. */
export type BreakerChange = 'opened' | 'reopened' | 'closed';

/**
 * Identifies the state in which a call began. 0 or more: the breaker was closed, or the call is the probe.
 * Negative: the breaker was open, but not for the account of the call.
 */
export type BreakerPass = number;

/** Whose calls failed: those of one account, or of `several`; undefined if no call failed. */
type Accounts = AccountIndex | 'several' | undefined;

/** The counts of one period. */
interface Period {
  calls: number;
  failures: number;
  /** Whose calls these failures were. */
  failedOf: Accounts;
}

const newPeriod = (): Period => ({ calls: 0, failures: 0, failedOf: undefined });

function accountsOfBoth(first: Accounts, second: Accounts): Accounts {
  if (first === undefined || second === undefined) return first ?? second;
  return first === second ? first : 'several';
}

export class Breaker {
  readonly #failuresMax: number;
  readonly #onChange: (change: BreakerChange, cooldownMs: number) => void;
  #failuresInARow = 0;
  #failedInARowOf: Accounts;
  #currentPeriod = newPeriod();
  #formerPeriod = newPeriod();
  /** The accounts for which the breaker is open: `several` is all. */
  #openFor: Accounts;
  #periodEndMs = 0;
  /** 0 while closed. */
  #cooldownMs = 0;
  /** While open: from when on a call may probe. */
  #probeAtMs = 0;
  /** When the breaker opened, or when its last probe began. */
  #openedAtMs = 0;
  /** Counts state changes and probes, so it is above 0 while the breaker is open. */
  #pass: BreakerPass = 0;

  /** With `failuresMax` 0 the breaker never opens. `onChange` must neither throw nor call the breaker. */
  constructor(failuresMax: number, onChange: (change: BreakerChange, cooldownMs: number) => void) {
    this.#failuresMax = failuresMax;
    this.#onChange = onChange;
  }

  /** Whether the breaker is open, for one account or for all. True also while a call probes. */
  get isOpen(): boolean {
    return this.#cooldownMs > 0;
  }

  /** Milliseconds until a call of that account may begin; 0 is now. */
  waitMs(nowMs: MonotonicMs, account: AccountIndex): number {
    return this.#isOpenFor(account) ? Math.max(0, this.#probeAtMs - nowMs) : 0;
  }

  /** As `waitMs`, if no other upstream is left: at most LONE_COOLDOWN_MS_MAX. */
  loneWaitMs(nowMs: MonotonicMs, account: AccountIndex): number {
    if (!this.#isOpenFor(account)) return 0;
    return Math.max(0, Math.min(this.#probeAtMs, this.#openedAtMs + LONE_COOLDOWN_MS_MAX) - nowMs);
  }

  /** Closes the breaker at an operator's order. Outcomes of running calls are then ignored. */
  reset(): void {
    if (this.isOpen) this.#close();
  }

  /**
   * A call begins for which `waitMs` or `loneWaitMs` is 0. If the breaker is open for its account, the call
   * is the probe. If the probe gets no response, another call probes after a cooldown. The caller hands the
   * result to `answered` if a response begins, and then to exactly one of `succeeded`, `failed` and `ended`.
   */
  begin(nowMs: MonotonicMs, account: AccountIndex): BreakerPass {
    if (this.isOpen && !this.#isOpenFor(account)) return -this.#pass;
    if (this.isOpen) {
      this.#pass++;
      this.#openedAtMs = nowMs;
      this.#probeAtMs = nowMs + this.#cooldownMs;
    }
    return this.#pass;
  }

  /**
   * A good response has begun. If the call is the probe, the breaker closes now: a stream may take minutes.
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
    const calls = this.#currentPeriod.calls + this.#formerPeriod.calls;
    const failures = this.#currentPeriod.failures + this.#formerPeriod.failures;
    const isTooMany = failures >= this.#failuresMax && 2 * failures >= calls;
    if (!isTooMany && this.#failuresInARow < this.#failuresMax) return;
    const failedOf = isTooMany
      ? accountsOfBoth(this.#currentPeriod.failedOf, this.#formerPeriod.failedOf)
      : this.#failedInARowOf;
    this.#openFor = accountsOfBoth(this.#openFor, failedOf);
    this.#open(nowMs, COOLDOWN_MS_MIN, 'opened');
    // If the breaker is open for one account, the next failure, of any other account, opens it for all.
    this.#clearCounts(this.#failuresMax - 1);
  }

  /** The call ended and says nothing about the upstream. If it was the probe, the next call probes. */
  ended(pass: BreakerPass, nowMs: MonotonicMs): void {
    if (pass === this.#pass && this.isOpen) this.#probeAtMs = nowMs;
  }

  /** Whether calls of that account must wait. Compare `isOpen`, which is of any account. */
  #isOpenFor(account: AccountIndex): boolean {
    return this.isOpen && (this.#openFor === 'several' || this.#openFor === account);
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
    this.#openFor = undefined;
    this.#clearCounts(0);
    this.#onChange('closed', 0);
  }

  /** Forgets both periods. `failuresInARow` is how many failures already count in a row. */
  #clearCounts(failuresInARow: number): void {
    this.#failuresInARow = failuresInARow;
    this.#failedInARowOf = undefined;
    this.#currentPeriod = newPeriod();
    this.#formerPeriod = newPeriod();
  }

  /** `failedOf`: the account of the call if it failed, else undefined. */
  #count(nowMs: MonotonicMs, failedOf: AccountIndex | undefined): void {
    if (nowMs >= this.#periodEndMs) {
      const isNext = nowMs < this.#periodEndMs + PERIOD_MS;
      this.#formerPeriod = isNext ? this.#currentPeriod : newPeriod();
      this.#currentPeriod = newPeriod();
      this.#periodEndMs = nowMs + PERIOD_MS;
    }
    this.#currentPeriod.calls++;
    if (failedOf === undefined) {
      this.#failuresInARow = 0;
      this.#failedInARowOf = undefined;
      return;
    }
    this.#currentPeriod.failures++;
    this.#currentPeriod.failedOf = accountsOfBoth(this.#currentPeriod.failedOf, failedOf);
    this.#failuresInARow++;
    this.#failedInARowOf = accountsOfBoth(this.#failedInARowOf, failedOf);
  }
}
