/**
 * The limits of upstreams, as a worker's calls take from them: requests and tokens of the minute, calls in
 * flight, by scope (a provider's key). The counters are shared by all workers; the calls that wait for room
 * are this worker's. TargetChoice takes, the session settles the tokens. Upstream worker.
 */
import type { Clock } from '../core/clock.js';
import type { UpstreamCounters, Shortage } from '../ledger/upstream-counters.js';
import { QuotaQueue } from './quota-queue.js';
import type { TargetQuotas } from './target.js';

export class UpstreamQuotas {
  readonly queue: QuotaQueue;
  readonly #counters: UpstreamCounters;

  constructor(counters: UpstreamCounters, clock: Clock) {
    this.#counters = counters;
    this.queue = new QuotaQueue(clock);
  }

  /**
   * Takes of each of its limits, or nothing: undefined if there is no room, or if others wait for it and the
   * call is not `queued`. `tokens`: what the call may use at most.
   */
  take(quotas: TargetQuotas, tokens: number, queued: boolean): QuotaHold | undefined {
    const { scope, limits } = quotas;
    if (!queued && this.queue.isAwaited(scope)) return undefined;
    if (this.#counters.take(scope, limits, tokens) !== undefined) return undefined;
    return new QuotaHold(this.#counters, this.queue, quotas, tokens);
  }

  /** Why `take` gives nothing now. */
  shortageOf({ scope, limits }: TargetQuotas, tokens: number): Shortage {
    return this.#counters.shortageOf(scope, limits, tokens);
  }
}

/** What one attempt has taken. Each part is given back once. */
export class QuotaHold {
  readonly #counters: UpstreamCounters;
  readonly #queue: QuotaQueue;
  readonly #quotas: TargetQuotas;
  readonly #tokens: number;
  #inFlight: boolean;
  #settled: boolean;

  constructor(counters: UpstreamCounters, queue: QuotaQueue, quotas: TargetQuotas, tokens: number) {
    const { callsInFlight, tokensPerMinute } = quotas.limits;
    this.#counters = counters;
    this.#queue = queue;
    this.#quotas = quotas;
    this.#tokens = tokens;
    this.#inFlight = callsInFlight !== undefined;
    this.#settled = tokensPerMinute === undefined;
  }

  /** The upstream is done with the call. Idempotent. */
  ended(): void {
    if (!this.#inFlight) return;
    this.#inFlight = false;
    this.#counters.giveBackCall(this.#quotas.scope);
    this.#queue.roomCame();
  }

  /** The attempt used `tokens`; undefined: perhaps all that it holds. The first call counts. */
  settle(tokens = this.#tokens): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#counters.settle(this.#quotas.scope, this.#tokens, tokens);
    this.#queue.roomCame();
  }
}
