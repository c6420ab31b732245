/**
 * Counts what calls use of the limits of their upstreams, over all workers of the process: requests and
 * tokens of the minute, calls in flight. Upstreams of one address and key have one scope
 * (config/upstream-scopes.ts). Each scope has the same records as a group, in buffers that
 * gateway/gateway-start.ts makes. Upstream workers (upstream/upstream-quotas.ts) take and give back. The main
 * thread reads (gateway/gateway-metrics.ts), and settles what a dead worker held
 * (gateway/upstream-workers.ts).
 *
 * If limits are shared with other processes, workers take from what the coordinator granted to this process;
 * the main thread puts grants in by UpstreamLeases. What this process uses is then counted a second time, in
 * `ownUse`, which only operators read.
 *
 * Beside the records each worker has a stripe, which it alone writes while it lives: for each scope its calls
 * in flight, and the tokens that they hold. The stripe is raised after the records and lowered before them.
 *
 * Must hold (also test/unit/upstream/upstream-quotas.test.ts, test/e2e/upstream-quotas.test.ts):
 * - Of a scope never more is taken than its limits, or providers reject calls.
 * - What a dead worker's calls hold is given back once. The stripe never has what the records lack, so what a
 *   worker took or gave back as it died may stay held until the gateway is restarted.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { UPSTREAM_SCOPES_MAX } from '../core/limits.js';
import {
  QUOTA_FIELDS,
  UPSTREAM_QUOTA_NAMES,
  type UpstreamLimits,
  type UpstreamQuotaName,
} from '../core/quotas.js';
import { asUpstreamScopeIndex, type UpstreamScopeIndex } from '../core/units.js';
import {
  CALLS_IN_FLIGHT,
  createScopeBuffers,
  openScopeViews,
  type QuotaNumber,
  stockAt,
  TOKENS_PER_MINUTE,
} from './layout.js';
import { LeasedStocks, type StockWords } from './leased-stocks.js';
import { LeasedWindow } from './leased-window.js';
import { CountedLeases } from './leases.js';
import { NO_PERIOD, Stocks } from './stocks.js';
import { TokenWindow } from './token-window.js';
import { type MinuteCounter, Window } from './window.js';

/** What a stripe has of each scope: how many calls are in flight, the tokens that they hold; two words. */
const HELD_CALLS = 0;
const HELD_TOKENS = 1;
const HELD_WORDS = 2;
const STRIPE_WORDS = UPSTREAM_SCOPES_MAX * HELD_WORDS;

/** Why the limits of an upstream keep a call out. */
export interface Shortage {
  /** The quota that is short (has too little left) for longest; undefined if none is short. */
  readonly quota: UpstreamQuotaName | undefined;
  /** How long until no quota is short if no other call comes; 0: not known; Infinity: never. */
  readonly freeInMs: number;
  /** Whether the coordinator may have more, so that the worker should ask it before the call waits. */
  readonly mayAskForMore: boolean;
}

/** A plain record, for the `workerData` of a thread. */
export type UpstreamBuffers = Readonly<ReturnType<typeof createUpstreamBuffers>>;

/** Called once, on the main thread. `isShared`: whether other processes share the limits. */
export function createUpstreamBuffers(workersMax: number, { isShared = false } = {}) {
  return {
    ...createScopeBuffers(UPSTREAM_SCOPES_MAX),
    ownUse: isShared ? createScopeBuffers(UPSTREAM_SCOPES_MAX) : undefined,
    /** A stripe of floats for each worker. */
    held: new SharedArrayBuffer(workersMax * STRIPE_WORDS * Float64Array.BYTES_PER_ELEMENT),
  };
}

export class UpstreamCounters {
  readonly #minute: MinuteCounter<UpstreamScopeIndex>;
  /** The next two count the use of this process alone. If limits are not shared, `take` counts by them. */
  readonly #ownMinute: Window<UpstreamScopeIndex>;
  readonly #ownTokens: TokenWindow;
  readonly #stocks: Stocks;
  readonly #isShared: boolean;
  readonly #clock: Clock;
  readonly #buffers: UpstreamBuffers;
  /** The worker's own stripe. The main thread has none, so it can take nothing. */
  readonly #stripe: Float64Array | undefined;
  readonly #onLow: (scope: UpstreamScopeIndex) => void;

  /** `worker`: whose stripe to write; undefined on the main thread. `onLow`: called when a lease runs low. */
  constructor(
    buffers: UpstreamBuffers,
    clock: Clock,
    worker?: number,
    onLow: (scope: UpstreamScopeIndex) => void = () => undefined,
  ) {
    const { counted, quotas } = openScopeViews(buffers);
    const ownUse = openScopeViews(buffers.ownUse ?? buffers);
    this.#isShared = buffers.ownUse !== undefined;
    this.#ownMinute = new Window(ownUse.counted, clock);
    this.#ownTokens = new TokenWindow(ownUse.quotas, clock);
    this.#minute = this.#isShared ? new LeasedWindow(counted, clock, onLow) : this.#ownMinute;
    this.#stocks = this.#isShared ? new LeasedStocks(quotas.words64, clock) : new Stocks(quotas.words64);
    this.#clock = clock;
    this.#buffers = buffers;
    this.#stripe = worker === undefined ? undefined : stripeOf(buffers, worker);
    this.#onLow = onLow;
  }

  /** Takes of each quota that has a limit; returns undefined, or takes nothing and returns why. Worker. */
  take(scope: UpstreamScopeIndex, limits: UpstreamLimits, tokens: number): Shortage | undefined {
    invariant(this.#stripe !== undefined, 'who takes has a stripe, from which its death is mended');
    invariant(tokens >= 0, 'the tokens that a call may use are not negative');
    const { callsInFlight, tokensPerMinute, requestsPerMinute } = limits;
    // A permit cannot be given back, so it is taken last. But it is checked first, so that in most rejections
    // nothing has to be given back.
    if (requestsPerMinute !== undefined && !this.#minute.check(scope, requestsPerMinute).admitted)
      return this.shortageOf(scope, limits, tokens);
    if (callsInFlight !== undefined && !this.#takeCall(scope, callsInFlight))
      return this.shortageOf(scope, limits, tokens);
    if (tokensPerMinute !== undefined && !this.#takeTokens(scope, tokens, tokensPerMinute)) {
      if (callsInFlight !== undefined) this.giveBackCall(scope);
      return this.shortageOf(scope, limits, tokens);
    }
    if (requestsPerMinute === undefined) return undefined;
    if (this.#minute.take(scope, requestsPerMinute).admitted) {
      if (this.#isShared) this.#ownMinute.take(scope, Infinity);
      return undefined;
    }
    if (tokensPerMinute !== undefined) this.settle(scope, tokens, 0);
    if (callsInFlight !== undefined) this.giveBackCall(scope);
    return this.shortageOf(scope, limits, tokens);
  }

  /**
   * Gives back the call in flight that `take` took, when the upstream is done. Only for limits with calls in
   * flight. TakenQuotas (upstream/upstream-quotas.ts) calls this and `settle` once for each `take`. Worker.
   */
  giveBackCall(scope: UpstreamScopeIndex): void {
    this.#hold(scope, HELD_CALLS, -1);
    this.#stocks.settle(stockAt(scope, CALLS_IN_FLIGHT), NO_PERIOD, 1, 0);
  }

  /** Replaces the tokens that `take` took by the used ones. Only for limits with tokens a minute. Worker. */
  settle(scope: UpstreamScopeIndex, held: number, used: number): void {
    invariant(used >= 0, 'the tokens that a call used are not negative');
    this.#hold(scope, HELD_TOKENS, -held);
    this.#settleTokens(scope, held, used);
  }

  /** Whether a quota is short. With shared limits, what the coordinator had by its last reply is free too. */
  isShort(scope: UpstreamScopeIndex, limits: UpstreamLimits, tokens: number): boolean {
    const { callsInFlight, tokensPerMinute, requestsPerMinute } = limits;
    if (requestsPerMinute !== undefined && !this.#minute.check(scope, requestsPerMinute).admitted)
      return true;
    if (callsInFlight !== undefined && this.#callsLeft(scope, callsInFlight) < 1) return true;
    if (tokensPerMinute === undefined) return false;
    return tokens > tokensPerMinute || this.#msUntilTokens(scope, tokens, tokensPerMinute) > 0;
  }

  /** Which quota is short, and for how long. Of shared limits call slots count as taken. */
  shortageOf(scope: UpstreamScopeIndex, limits: UpstreamLimits, tokens: number): Shortage {
    const { callsInFlight, tokensPerMinute = Infinity, requestsPerMinute } = limits;
    if (tokens > tokensPerMinute)
      return { quota: 'tokens_per_minute', freeInMs: Infinity, mayAskForMore: false };
    let quota: UpstreamQuotaName | undefined;
    let freeInMs = 0;
    // Of shared limits other processes may have all call slots.
    if (callsInFlight !== undefined && (this.#isShared || this.#callsLeft(scope, callsInFlight) < 1))
      quota = 'calls_in_flight';
    if (limits.tokensPerMinute !== undefined) {
      const waitMs = this.#msUntilTokens(scope, tokens, tokensPerMinute);
      if (waitMs > 0) [quota, freeInMs] = ['tokens_per_minute', waitMs];
    }
    if (requestsPerMinute !== undefined) {
      const minute = this.#minute.check(scope, requestsPerMinute);
      const waitMs = minute.admitted ? 0 : Math.max(1, minute.resetWallMs - this.#clock.wallMs());
      if (waitMs > freeInMs) [quota, freeInMs] = ['requests_per_minute', waitMs];
    }
    return { quota, freeInMs, mayAskForMore: this.mayAskForMore(scope, limits) };
  }

  /** `Shortage.mayAskForMore` of a call that is not beyond the limits. Cheap. Worker. */
  mayAskForMore(scope: UpstreamScopeIndex, limits: UpstreamLimits): boolean {
    if (!this.#isShared) return false;
    const { callsInFlight, tokensPerMinute, requestsPerMinute } = limits;
    if (callsInFlight !== undefined || tokensPerMinute !== undefined) return true;
    return requestsPerMinute !== undefined && this.#minute.check(scope, requestsPerMinute).mayAskForMore;
  }

  /** What this process uses of each limit, including what its calls hold. Any thread. */
  useOf(scope: UpstreamScopeIndex, limits: UpstreamLimits) {
    return UPSTREAM_QUOTA_NAMES.flatMap((quota) => {
      const limit = limits[QUOTA_FIELDS[quota]];
      return limit === undefined ? [] : [{ quota, limit, used: this.#usedOf(scope, quota) }];
    });
  }

  /**
   * Ends the calls of a dead worker. The tokens that they held count as used, because the upstreams may have
   * worked on. Main thread, before the worker's successor starts, which has the same stripe.
   */
  releaseWorker(worker: number): void {
    const stripe = stripeOf(this.#buffers, worker);
    for (let index = 0; index < UPSTREAM_SCOPES_MAX; index++) {
      const first = index * HELD_WORDS;
      const calls = stripe[first + HELD_CALLS]!;
      const tokens = stripe[first + HELD_TOKENS]!;
      if (calls === 0 && tokens === 0) continue;
      const scope = asUpstreamScopeIndex(index);
      if (calls > 0) this.#stocks.settle(stockAt(scope, CALLS_IN_FLIGHT), NO_PERIOD, calls, 0);
      this.#settleTokens(scope, tokens, tokens);
      stripe[first + HELD_CALLS] = 0;
      stripe[first + HELD_TOKENS] = 0;
    }
  }

  #takeCall(scope: UpstreamScopeIndex, callsInFlight: number): boolean {
    if (!this.#takeStock(scope, CALLS_IN_FLIGHT, 1, callsInFlight)) return false;
    this.#hold(scope, HELD_CALLS, 1);
    return true;
  }

  #takeTokens(scope: UpstreamScopeIndex, tokens: number, tokensPerMinute: number): boolean {
    if (this.#isShared) {
      if (!this.#takeStock(scope, TOKENS_PER_MINUTE, tokens, tokensPerMinute)) return false;
      this.#ownTokens.take(scope, tokens, Infinity);
    } else if (!this.#ownTokens.take(scope, tokens, tokensPerMinute)) return false;
    this.#hold(scope, HELD_TOKENS, tokens);
    return true;
  }

  #takeStock(scope: UpstreamScopeIndex, quota: QuotaNumber, amount: number, limit: number): boolean {
    const stocks = this.#stocks;
    if (stocks.take(stockAt(scope, quota), NO_PERIOD, amount, limit) === undefined) return false;
    if (stocks.takeRanLow()) this.#onLow(scope);
    return true;
  }

  #settleTokens(scope: UpstreamScopeIndex, held: number, used: number): void {
    if (this.#isShared) this.#stocks.settle(stockAt(scope, TOKENS_PER_MINUTE), NO_PERIOD, held, used);
    this.#ownTokens.settle(scope, held, used);
  }

  #callsLeft(scope: UpstreamScopeIndex, callsInFlight: number): number {
    return this.#stocks.leftOf(stockAt(scope, CALLS_IN_FLIGHT), NO_PERIOD, callsInFlight).left;
  }

  /** Milliseconds until the tokens are free; 0 if they are. Even a call of no tokens needs one left. */
  #msUntilTokens(scope: UpstreamScopeIndex, tokens: number, limit: number): number {
    if (!this.#isShared) return this.#ownTokens.msUntil(scope, tokens, limit);
    const { left, waitMs } = this.#stocks.leftOf(stockAt(scope, TOKENS_PER_MINUTE), NO_PERIOD, limit);
    return left >= tokens && left > 0 ? 0 : Math.max(1, waitMs);
  }

  #usedOf(scope: UpstreamScopeIndex, quota: UpstreamQuotaName): number {
    switch (quota) {
      case 'requests_per_minute':
        return this.#ownMinute.usedOf(scope);
      case 'tokens_per_minute':
        return this.#ownTokens.read(scope).taken;
      case 'calls_in_flight':
        return this.#stocks.read(stockAt(scope, CALLS_IN_FLIGHT), NO_PERIOD).taken;
    }
  }

  /** Changes a field of the worker's own stripe. No atomic operation is needed: no other thread writes it. */
  #hold(scope: UpstreamScopeIndex, field: number, amount: number): void {
    // `!`: who has taken has a stripe.
    this.#stripe![scope * HELD_WORDS + field]! += amount;
  }
}

/** Throws a RangeError if the buffers have no such worker. */
function stripeOf({ held }: UpstreamBuffers, worker: number): Float64Array {
  return new Float64Array(held, worker * STRIPE_WORDS * Float64Array.BYTES_PER_ELEMENT, STRIPE_WORDS);
}

/** The leases of upstreams if limits are shared; the lease manager puts grants in. Main thread. */
export class UpstreamLeases {
  readonly minute: CountedLeases<UpstreamScopeIndex>;
  readonly #stocks: LeasedStocks;

  constructor(buffers: UpstreamBuffers, clock: Clock) {
    const { counted, quotas } = openScopeViews(buffers);
    this.minute = new CountedLeases(counted, clock);
    this.#stocks = new LeasedStocks(quotas.words64, clock);
  }

  stockOf(scope: UpstreamScopeIndex, quota: 'tokens_per_minute' | 'calls_in_flight'): StockWords {
    const number = quota === 'calls_in_flight' ? CALLS_IN_FLIGHT : TOKENS_PER_MINUTE;
    return this.#stocks.leaseOf(stockAt(scope, number));
  }
}
