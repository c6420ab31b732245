/**
 * Counts what calls use of the limits of their upstreams, over all workers of the process: requests and
 * tokens of the minute, calls in flight. A scope is a provider's key (UpstreamScopeIndex) and has the records
 * that a group has, in buffers of its own. Upstream workers take and give back; the main thread reads, and
 * settles what a dead worker held.
 *
 * Beside the records each worker has a stripe that it alone writes: for each scope its calls in flight, and
 * the tokens that they hold.
 */
import type { Clock } from '../core/clock.js';
import { UPSTREAM_SCOPES_MAX } from '../core/limits.js';
import {
  QUOTA_FIELDS,
  UPSTREAM_QUOTA_NAMES,
  type UpstreamLimits,
  type UpstreamQuotaName,
} from '../core/quotas.js';
import { asUpstreamScopeIndex, type UpstreamScopeIndex } from '../core/units.js';
import {
  createScopeBuffers,
  EXTENDED_QUOTAS,
  openScopeViews,
  QUOTA_WORDS64,
  STOCK_WORDS,
  STOCKS,
  type ScopeBuffers,
} from './layout.js';
import { Stocks } from './stocks.js';
import { TokenWindow } from './token-window.js';
import { type MinuteCounter, Window } from './window.js';

/** Calls in flight are not refilled: they are all of one period. */
const NO_PERIOD = 0;

/** Fields of a scope in a worker's stripe. */
const HELD_CALLS = 0;
const HELD_TOKENS = 1;
const HELD_WORDS = 2;
const STRIPE_WORDS = UPSTREAM_SCOPES_MAX * HELD_WORDS;

/** Why an upstream has no room for a call. */
export interface Shortage {
  readonly quota: UpstreamQuotaName;
  /**
   * Milliseconds until there is room if nobody else takes it; 0 if that is not known, Infinity if the call is
   * beyond the limit.
   */
  readonly freeInMs: number;
  /** The coordinator, which was not asked, may have room. */
  readonly asks: boolean;
}

/** What is used of one limit. */
interface QuotaUse {
  readonly quota: UpstreamQuotaName;
  readonly limit: number;
  readonly used: number;
}

/** A plain record: hand it to a thread in its `workerData`. */
export interface UpstreamBuffers extends ScopeBuffers {
  /** A stripe of floats for each worker. */
  readonly held: SharedArrayBuffer;
}

export function createUpstreamBuffers(workers: number): UpstreamBuffers {
  const stripeBytes = STRIPE_WORDS * Float64Array.BYTES_PER_ELEMENT;
  return { ...createScopeBuffers(UPSTREAM_SCOPES_MAX), held: new SharedArrayBuffer(workers * stripeBytes) };
}

export class UpstreamCounters {
  readonly #minute: MinuteCounter<UpstreamScopeIndex>;
  readonly #tokens: TokenWindow;
  readonly #stocks: Stocks;
  readonly #clock: Clock;
  readonly #held: Float64Array;
  readonly #stripe: number;

  /** `worker`: whose stripe to write. The main thread writes none. */
  constructor(buffers: UpstreamBuffers, clock: Clock, worker = 0) {
    const { counted, quotas } = openScopeViews(buffers);
    this.#minute = new Window(counted, clock);
    this.#tokens = new TokenWindow(quotas, clock);
    this.#stocks = new Stocks(quotas.words64);
    this.#clock = clock;
    this.#held = new Float64Array(buffers.held);
    this.#stripe = worker * STRIPE_WORDS;
  }

  /** Takes of each limit that there is, or nothing: then it returns what is short. Worker. */
  take(scope: UpstreamScopeIndex, limits: UpstreamLimits, tokens: number): Shortage | undefined {
    const { callsInFlight, tokensPerMinute, requestsPerMinute } = limits;
    // A permit cannot be given back, so it is taken last, and looked for first.
    if (requestsPerMinute !== undefined && !this.#minute.check(scope, requestsPerMinute).admitted)
      return this.shortageOf(scope, limits, tokens);
    if (callsInFlight !== undefined && !this.#takeCall(scope, callsInFlight))
      return this.shortageOf(scope, limits, tokens);
    if (tokensPerMinute !== undefined && !this.#tokens.take(scope, tokens, tokensPerMinute)) {
      if (callsInFlight !== undefined) this.giveBackCall(scope);
      return this.shortageOf(scope, limits, tokens);
    }
    if (tokensPerMinute !== undefined) this.#hold(scope, HELD_TOKENS, tokens);
    if (requestsPerMinute === undefined || this.#minute.take(scope, requestsPerMinute).admitted)
      return undefined;
    if (tokensPerMinute !== undefined) this.settle(scope, tokens, 0);
    if (callsInFlight !== undefined) this.giveBackCall(scope);
    return this.shortageOf(scope, limits, tokens);
  }

  /** The call that `take` has taken is over at its upstream. Only if calls in flight were limited. Worker. */
  giveBackCall(scope: UpstreamScopeIndex): void {
    this.#stocks.settle(flightAt(scope), NO_PERIOD, 1, 0);
    this.#hold(scope, HELD_CALLS, -1);
  }

  /** Replaces the tokens that `take` has taken by what was used. Only if tokens were limited. Worker. */
  settle(scope: UpstreamScopeIndex, held: number, used: number): void {
    this.#tokens.settle(scope, held, used);
    this.#hold(scope, HELD_TOKENS, -held);
  }

  /** What `take` finds short now; if there is room, the quota that is next to be short, with 0 to wait. */
  shortageOf(scope: UpstreamScopeIndex, limits: UpstreamLimits, tokens: number): Shortage {
    const { tokensPerMinute = Infinity, requestsPerMinute } = limits;
    if (tokens > tokensPerMinute) return { quota: 'tokens_per_minute', freeInMs: Infinity, asks: false };
    let short: Shortage = { quota: 'calls_in_flight', freeInMs: 0, asks: false };
    const note = (quota: UpstreamQuotaName, freeInMs: number, asks: boolean): void => {
      if (freeInMs > short.freeInMs) short = { quota, freeInMs, asks };
    };
    if (limits.tokensPerMinute !== undefined)
      note('tokens_per_minute', this.#tokens.msUntil(scope, tokens, limits.tokensPerMinute), false);
    if (requestsPerMinute !== undefined) {
      const { admitted, resetWallMs, asks } = this.#minute.check(scope, requestsPerMinute);
      if (!admitted) note('requests_per_minute', Math.max(1, resetWallMs - this.#clock.wallMs()), asks);
    }
    return short;
  }

  /** What is used of each limit, with what calls hold. Any thread. */
  useOf(scope: UpstreamScopeIndex, limits: UpstreamLimits): QuotaUse[] {
    return UPSTREAM_QUOTA_NAMES.flatMap((quota) => {
      const limit = limits[QUOTA_FIELDS[quota]];
      return limit === undefined ? [] : [{ quota, limit, used: this.#usedOf(scope, quota) }];
    });
  }

  /**
   * A worker has died: its calls are over, and the tokens that they held count as used, because its upstreams
   * may have worked on. Main thread, before the worker's successor starts.
   */
  releaseWorker(worker: number): void {
    for (let index = 0; index < UPSTREAM_SCOPES_MAX; index++) {
      const at = worker * STRIPE_WORDS + index * HELD_WORDS;
      const calls = this.#held[at + HELD_CALLS]!;
      const tokens = this.#held[at + HELD_TOKENS]!;
      if (calls === 0 && tokens === 0) continue;
      const scope = asUpstreamScopeIndex(index);
      if (calls > 0) this.#stocks.settle(flightAt(scope), NO_PERIOD, calls, 0);
      this.#tokens.settle(scope, tokens, tokens);
      this.#held[at + HELD_CALLS] = 0;
      this.#held[at + HELD_TOKENS] = 0;
    }
  }

  #takeCall(scope: UpstreamScopeIndex, callsInFlight: number): boolean {
    if (this.#stocks.take(flightAt(scope), NO_PERIOD, 1, callsInFlight) === undefined) return false;
    this.#hold(scope, HELD_CALLS, 1);
    return true;
  }

  #usedOf(scope: UpstreamScopeIndex, quota: UpstreamQuotaName): number {
    switch (quota) {
      case 'requests_per_minute':
        return this.#minute.usedOf(scope);
      case 'tokens_per_minute':
        return this.#tokens.read(scope).taken;
      case 'calls_in_flight':
        return this.#stocks.read(flightAt(scope), NO_PERIOD).taken;
    }
  }

  #hold(scope: UpstreamScopeIndex, field: number, amount: number): void {
    this.#held[this.#stripe + scope * HELD_WORDS + field]! += amount;
  }
}

/** Where the stock of calls in flight lies. */
function flightAt(scope: UpstreamScopeIndex): number {
  return scope * QUOTA_WORDS64 + STOCKS + EXTENDED_QUOTAS.indexOf('calls_in_flight') * STOCK_WORDS;
}
