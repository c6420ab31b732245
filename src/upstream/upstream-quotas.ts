/**
 * The limits of upstreams, as a worker's calls take from them: requests and tokens of the minute, calls in
 * flight, by scope (a provider's key). All workers share the counters (ledger/upstream-counters.ts); each has
 * a queue of its own. target-choice.ts takes, the session settles the tokens. Upstream worker.
 *
 * Must hold: each part of a QuotaHold is given back once. One question a scope is asked at a time, because
 * its grant covers what all calls of the worker lack (test/unit/upstream/upstream-quotas.test.ts).
 * LeaseChannel.ask never rejects, or the scope would never be asked for again.
 */
import type { LeaseChannel } from '../channel/lease-channel.js';
import type { Clock } from '../core/clock.js';
import type { UpstreamScopeIndex } from '../core/units.js';
import type { UpstreamCounters, Shortage } from '../ledger/upstream-counters.js';
import { QuotaQueue } from './quota-queue.js';
import type { TargetQuotas } from './target.js';

/**
 * If the coordinator has nothing left, it is asked again after so long for the calls that wait. Other
 * processes give idle leases back after 750 ms.
 */
const ASK_AGAIN_MS = 250;

/** Asks the main thread for leases, if limits are shared with other processes. */
type AskLease = Pick<LeaseChannel, 'ask'>;

export class UpstreamQuotas {
  readonly queue: QuotaQueue;
  readonly #counters: UpstreamCounters;
  readonly #clock: Clock;
  readonly #leases: AskLease | undefined;
  /** By scope: until when the coordinator is not asked; Infinity until its reply. */
  readonly #askedUntilMs = new Map<UpstreamScopeIndex, number>();

  /** `leases`: undefined if limits are not shared. */
  constructor(counters: UpstreamCounters, clock: Clock, leases?: AskLease) {
    this.#counters = counters;
    this.#clock = clock;
    this.#leases = leases;
    this.queue = new QuotaQueue(clock);
  }

  /**
   * Takes of each limit, or of none: undefined if one is reached, or if other calls wait for the scope and
   * this one is not `queued`. `tokens`: the most that the call may use.
   */
  take(quotas: TargetQuotas, tokens: number, queued: boolean): QuotaHold | undefined {
    const { scope, limits } = quotas;
    if (!queued && this.queue.isAwaited(scope)) return undefined;
    const short = this.#counters.take(scope, limits, tokens);
    if (short === undefined) return new QuotaHold(this.#counters, this.queue, quotas, tokens);
    if (short.asks) this.#ask(scope, tokens);
    return undefined;
  }

  /**
   * Why `take` gives nothing now. `asks`: what is missing may be with the coordinator, which was not asked or
   * has not replied yet. Else it is gone until the limit's window has moved on.
   */
  shortageOf({ scope, limits }: TargetQuotas, tokens: number): Shortage {
    const short = this.#counters.shortageOf(scope, limits, tokens);
    if (!short.asks) return short;
    const untilMs = this.#askedUntilMs.get(scope) ?? Infinity;
    return { ...short, asks: untilMs === Infinity };
  }

  /** Asks the coordinator, for all calls of the worker. */
  #ask(scope: UpstreamScopeIndex, tokens: number): void {
    if (this.#leases === undefined) return;
    if ((this.#askedUntilMs.get(scope) ?? 0) > this.#clock.monotonicMs()) return;
    this.#askedUntilMs.set(scope, Infinity);
    void this.#leases.ask([{ kind: 'upstream', index: scope }], { kind: 'upstream', tokens }).then((end) => {
      if (end === 'try') this.#askedUntilMs.delete(scope);
      else this.#askedUntilMs.set(scope, this.#clock.monotonicMs() + ASK_AGAIN_MS);
      this.queue.roomCame();
    });
  }
}

/** What one attempt has taken of an upstream's limits. */
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
