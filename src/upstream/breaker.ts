/**
 * A circuit breaker: keeps calls away from an upstream that fails again and again. target-state.ts has a
 * breaker for each target of a model. A breaker counts the calls of its own worker only, so that a call
 * touches no shared memory. Upstream worker.
 *
 *     closed ──(failures)──► open ──(cooldown is over)──► one call probes ──(response begins)──► closed
 *                             ▲                                │
 *                             └──(it fails: twice the cooldown)┘
 *
 * A breaker opens after `failuresMax` failures in a row, or after `failuresMax` failures within two periods
 * (PERIOD_MS) if half or more of the calls of these periods failed. `waitMs` assumes that other upstreams
 * serve calls meanwhile. If there is no other upstream, balancer.ts asks for `lastResortWaitMs`.
 *
 * If all of these failures were calls of one account, the breaker opens for that account only, because the
 * account's requests may be the reason: some upstreams send 500 for a request that they cannot read. Calls of
 * other accounts go on and are counted from 0. If the first of these calls to end fails, the breaker opens
 * for all accounts. If that call goes well, `failuresMax` failures are needed again.
 *
 * Must hold: one call at a time probes. The outcome of a call that began in an earlier state is ignored
 * (test/unit/upstream/breaker.test.ts).
 */
import type { AccountIndex, MonotonicMs } from '../core/units.js';

/** Calls are counted by period. The breaker looks at the current period and the previous one together. */
const PERIOD_MS = 5_000;
/** The first cooldown: an upstream that restarts its process is back by then. */
const COOLDOWN_MS_MIN = 2_000;
/** The longest cooldown: an upstream that was down for hours gets calls within a minute after it is back. */
const COOLDOWN_MS_MAX = 60_000;

/** The longest cooldown if no other upstream is left (the last resort): all calls fail meanwhile. */
const LAST_RESORT_COOLDOWN_MS_MAX = 5_000;

/** A change of the breaker, for `onChange`, with the cooldown that follows: 0 if the breaker has closed. */
export type BreakerChange = 'opened' | 'reopened' | 'closed';

declare const PASS: unique symbol;
/**
 * For the breaker alone: the number of the state in which a call began (`#stateNumber`), by which outdated
 * outcomes are ignored; negative if the breaker was open, but not for the account of the call.
 */
export type BreakerPass = number & { readonly [PASS]: true };

/** Whose calls failed: those of one account, or of `several`; undefined if no call failed. */
type Accounts = AccountIndex | 'several' | undefined;

/** The counts of one period. */
interface Period {
  calls: number;
  failures: number;
  /** Whose calls failed in the period. */
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
  #failuresInRow = 0;
  #failedInRowOf: Accounts;
  #currentPeriod = newPeriod();
  #previousPeriod = newPeriod();
  /** For whom the breaker is open: one account, or with `several` all accounts. Undefined while closed. */
  #openFor: Accounts;
  #periodEndMs = 0;
  /** The present cooldown; 0 while closed. */
  #cooldownMs = 0;
  /** While open: from when on a call may probe. */
  #probeAtMs = 0;
  /** From when `lastResortWaitMs` counts: when the breaker opened, or when its last probe began. */
  #lastResortFromMs = 0;
  /** Counts state changes and probes. Above 0 while open, so that the sign of a BreakerPass can tell more. */
  #stateNumber = 0;

  /** With `failuresMax` 0 the breaker never opens. `onChange` may neither throw nor call the breaker. */
  constructor(failuresMax: number, onChange: (change: BreakerChange, cooldownMs: number) => void) {
    this.#failuresMax = failuresMax;
    this.#onChange = onChange;
  }

  /** Whether the breaker is open, for one account or for all. True also while a call probes. */
  get isOpen(): boolean {
    return this.#cooldownMs > 0;
  }

  /** While open: when the cooldown ends, from which on a call may probe. */
  get cooldownEndMs(): number {
    return this.#probeAtMs;
  }

  /** Milliseconds until a call of that account may begin; 0 is now. */
  waitMs(nowMs: MonotonicMs, account: AccountIndex): number {
    return this.#isOpenFor(account) ? Math.max(0, this.#probeAtMs - nowMs) : 0;
  }

  /** As `waitMs`, if no other upstream is left: at most LAST_RESORT_COOLDOWN_MS_MAX. */
  lastResortWaitMs(nowMs: MonotonicMs, account: AccountIndex): number {
    if (!this.#isOpenFor(account)) return 0;
    return Math.max(
      0,
      Math.min(this.#probeAtMs, this.#lastResortFromMs + LAST_RESORT_COOLDOWN_MS_MAX) - nowMs,
    );
  }

  /** Closes the breaker at an operator's order. Outcomes of running calls are then ignored. */
  reset(): void {
    if (this.isOpen) this.#close();
  }

  /**
   * A call begins for which `waitMs` or `lastResortWaitMs` is 0. If the breaker is open for the call's
   * account, the call is the probe. If the probe gets no response, another call probes after a cooldown. The
   * result goes to `recordResponseBegin` if a response begins, then to one of the three others.
   */
  begin(nowMs: MonotonicMs, account: AccountIndex): BreakerPass {
    if (this.isOpen && !this.#isOpenFor(account)) return -this.#stateNumber as BreakerPass;
    if (this.isOpen) {
      this.#stateNumber++;
      this.#lastResortFromMs = nowMs;
      this.#probeAtMs = nowMs + this.#cooldownMs;
    }
    return this.#stateNumber as BreakerPass;
  }

  /** Whether the call with that pass is the probe, by whose outcome the breaker closes or opens again. */
  isProbe(pass: BreakerPass): boolean {
    return this.isOpen && pass === this.#stateNumber;
  }

  /** Whether the call with that pass began in the present state, so that its outcome counts. */
  #isOfPresentState(pass: BreakerPass): boolean {
    return pass === this.#stateNumber || pass === -this.#stateNumber;
  }

  /** A good response has begun. If the call is the probe, the breaker closes: a stream may take minutes. */
  recordResponseBegin(pass: BreakerPass): void {
    if (this.isProbe(pass)) this.#close();
  }

  /** The call ended well. */
  recordSuccess(pass: BreakerPass, nowMs: MonotonicMs): void {
    if (!this.#isOfPresentState(pass)) return;
    if (this.isProbe(pass)) this.#close();
    else this.#count(nowMs, undefined);
  }

  /** The call of that account failed, by a fault of the upstream. */
  recordFailure(pass: BreakerPass, nowMs: MonotonicMs, account: AccountIndex): void {
    if (!this.#isOfPresentState(pass) || this.#failuresMax === 0) return;
    if (this.isProbe(pass)) {
      this.#open(nowMs, Math.min(COOLDOWN_MS_MAX, 2 * this.#cooldownMs), 'reopened');
      return;
    }
    this.#count(nowMs, account);
    const calls = this.#currentPeriod.calls + this.#previousPeriod.calls;
    const failures = this.#currentPeriod.failures + this.#previousPeriod.failures;
    const isTooMany = failures >= this.#failuresMax && 2 * failures >= calls;
    if (!isTooMany && this.#failuresInRow < this.#failuresMax) return;
    const failedOf = isTooMany
      ? accountsOfBoth(this.#currentPeriod.failedOf, this.#previousPeriod.failedOf)
      : this.#failedInRowOf;
    this.#openFor = accountsOfBoth(this.#openFor, failedOf);
    this.#open(nowMs, COOLDOWN_MS_MIN, 'opened');
    // One failure is now enough: if the breaker is open for one account, the next one opens it for all.
    this.#clearCounts(this.#failuresMax - 1);
  }

  /** The call ended and says nothing about the upstream. If it was the probe, the next call probes. */
  recordNoOutcome(pass: BreakerPass, nowMs: MonotonicMs): void {
    if (this.isProbe(pass)) this.#probeAtMs = nowMs;
  }

  /** Whether calls of that account must wait. `isOpen` tells whether calls of any account must. */
  #isOpenFor(account: AccountIndex): boolean {
    return this.isOpen && (this.#openFor === 'several' || this.#openFor === account);
  }

  #open(nowMs: MonotonicMs, cooldownMs: number, change: BreakerChange): void {
    this.#cooldownMs = cooldownMs;
    this.#lastResortFromMs = nowMs;
    this.#probeAtMs = nowMs + cooldownMs;
    this.#stateNumber++;
    this.#onChange(change, cooldownMs);
  }

  #close(): void {
    this.#cooldownMs = 0;
    this.#stateNumber++;
    this.#openFor = undefined;
    this.#clearCounts(0);
    this.#onChange('closed', 0);
  }

  /** Forgets both periods. `failuresInRow`: how many failures in a row count from now on. */
  #clearCounts(failuresInRow: number): void {
    this.#failuresInRow = failuresInRow;
    this.#failedInRowOf = undefined;
    this.#currentPeriod = newPeriod();
    this.#previousPeriod = newPeriod();
  }

  /** Counts a call that has ended. `failedOf`: the account of the call if it failed, else undefined. */
  #count(nowMs: MonotonicMs, failedOf: AccountIndex | undefined): void {
    if (nowMs >= this.#periodEndMs) {
      const isAdjacent = nowMs < this.#periodEndMs + PERIOD_MS;
      this.#previousPeriod = isAdjacent ? this.#currentPeriod : newPeriod();
      this.#currentPeriod = newPeriod();
      this.#periodEndMs = nowMs + PERIOD_MS;
    }
    this.#currentPeriod.calls++;
    if (failedOf === undefined) {
      this.#failuresInRow = 0;
      this.#failedInRowOf = undefined;
      return;
    }
    this.#currentPeriod.failures++;
    this.#currentPeriod.failedOf = accountsOfBoth(this.#currentPeriod.failedOf, failedOf);
    this.#failuresInRow++;
    this.#failedInRowOf = accountsOfBoth(this.#failedInRowOf, failedOf);
  }
}
