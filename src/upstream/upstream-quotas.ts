/**
 * The limits of upstreams, as a worker's calls take from them: requests and tokens of the minute, calls in
 * flight, by scope (a provider's key). All workers share the counters (ledger/upstream-counters.ts); each has
 * a queue of its own. target-choice.ts takes, the session settles the tokens. Upstream worker.
 *
 * Must hold: each part of a QuotaHold is given back once. The coordinator is asked one question a scope at a
 * time: the question says what one call lacks, and calls that still lack something after the reply ask again
 * (test/unit/upstream/upstream-quotas.test.ts). LeaseChannel.ask must never reject, or nobody would ask for
 * the scope again.
 */
import { type LeaseChannel, refusedBy } from '../channel/lease-channel.js';
import type { Clock } from '../core/clock.js';
import type { UpstreamScopeIndex } from '../core/units.js';
import type { UpstreamCounters, Shortage } from '../ledger/upstream-counters.js';
import { QuotaQueue } from './quota-queue.js';
import type { TargetQuotas } from './target.js';

/**
 * The pause after a question that brought nothing, shorter than the 750 ms within which other processes give
 * idle leases back (IDLE_MS_SCARCE of sharing/lease-terms.ts).
 */
const ASK_AGAIN_MS = 250;
/**
 * If limits are shared with other processes, a call that may not wait still waits so long for the
 * coordinator's reply, which takes milliseconds. A denial comes earlier, because UPSTREAM_WAIT_MS of
 * sharing/lease-waits.ts is shorter (test/unit/sharing/lease-manager.test.ts).
 */
export const ASK_MS = 1_000;

/** The last question about a scope; none before the first one, and none after one that brought a grant. */
interface Question {
  /** When the next question may be asked, in monotonic ms; Infinity until the reply has come. */
  readonly nextMs: number;
  /**
   * Since when nobody knows whether the limit is reached. Infinity: the reply said that it is; -Infinity:
   * the reply decided nothing.
   */
  readonly undecidedSinceMs: number;
}

/** Asks the main thread for leases, if limits are shared with other processes. */
type AskLease = Pick<LeaseChannel, 'ask'>;

export class UpstreamQuotas {
  readonly queue: QuotaQueue;
  readonly #counters: UpstreamCounters;
  readonly #clock: Clock;
  readonly #leases: AskLease | undefined;
  /** At most one for each scope, so UPSTREAM_SCOPES_MAX bounds them. */
  readonly #questions = new Map<UpstreamScopeIndex, Question>();

  /** `leases`: undefined if limits are not shared. */
  constructor(counters: UpstreamCounters, clock: Clock, leases?: AskLease) {
    this.#counters = counters;
    this.#clock = clock;
    this.#leases = leases;
    this.queue = new QuotaQueue(clock);
  }

  /**
   * Takes of each limit, or of none: undefined if a limit is reached, or if other calls wait for the scope
   * and this call has not waited (`isQueued`). `tokens`: the most that the call may use.
   */
  take(quotas: TargetQuotas, tokens: number, isQueued: boolean): QuotaHold | undefined {
    const { scope, limits } = quotas;
    if (!isQueued && this.queue.isAwaited(scope)) return undefined;
    const shortage = this.#counters.take(scope, limits, tokens);
    if (shortage === undefined) return new QuotaHold(this.#counters, this.queue, quotas, tokens);
    if (shortage.asks) this.#ask(scope, tokens);
    return undefined;
  }

  /**
   * Why `take` gives nothing now; the session then decides whether the call waits. `asks`: the coordinator
   * may have what is missing, and was not asked or has not replied yet. Without `asks` the limit is used up
   * until tokens or requests weigh no more. `isLate`: the coordinator has not said in time whether it is
   * used up.
   */
  shortageOf({ scope, limits }: TargetQuotas, tokens: number): Shortage & { readonly isLate: boolean } {
    const shortage = this.#counters.shortageOf(scope, limits, tokens);
    const { undecidedSinceMs = Infinity } = this.#questions.get(scope) ?? {};
    const isLate = this.#clock.monotonicMs() - undecidedSinceMs >= ASK_MS;
    return { ...shortage, asks: shortage.asks && this.#isUnanswered(scope), isLate: shortage.asks && isLate };
  }

  /**
   * Whether `take` of a call that has not waited gives nothing now, and asking is no use: calls wait already,
   * the call is beyond the limit, the limits are not shared, or the last question has just brought nothing.
   */
  isFull({ scope, limits }: TargetQuotas, tokens: number): boolean {
    if (this.queue.isAwaited(scope)) return true;
    // The coordinator is never asked for more than the limit.
    if (tokens > (limits.tokensPerMinute ?? Infinity)) return true;
    if (!this.#counters.isShort(scope, limits, tokens)) return false;
    if (!this.#counters.mayAsk(scope, limits)) return true;
    // If the coordinator has replied, the scope has a question.
    return !this.#isUnanswered(scope) && this.#questions.get(scope)!.nextMs > this.#clock.monotonicMs();
  }

  /** As `asks` of `shortageOf`, but cheap: the queue calls this for each call that waits. */
  isAsking({ scope, limits }: TargetQuotas): boolean {
    return this.#isUnanswered(scope) && this.#counters.mayAsk(scope, limits);
  }

  /** Whether the coordinator was not asked about the scope, or has not replied yet. */
  #isUnanswered(scope: UpstreamScopeIndex): boolean {
    const { nextMs = Infinity } = this.#questions.get(scope) ?? {};
    return nextMs === Infinity;
  }

  /** Asks the coordinator, for all calls of the worker. */
  #ask(scope: UpstreamScopeIndex, tokens: number): void {
    if (this.#leases === undefined) return;
    const nowMs = this.#clock.monotonicMs();
    const { nextMs = 0, undecidedSinceMs = Infinity } = this.#questions.get(scope) ?? {};
    if (nextMs > nowMs) return;
    this.#questions.set(scope, { nextMs: Infinity, undecidedSinceMs: Math.min(undecidedSinceMs, nowMs) });
    const lack = { kind: 'upstream', tokens } as const;
    void this.#leases.ask([{ kind: 'upstream', index: scope }], lack).then((reply) => {
      // 'try': as much as the call lacks has come. If another call takes it first, the next question needs
      // no pause, because the exchanges with the coordinator bound how many questions there are.
      if (reply === 'try') this.#questions.delete(scope);
      else
        this.#questions.set(scope, {
          nextMs: this.#clock.monotonicMs() + ASK_AGAIN_MS,
          // Only a refusal says that the limit is used up. After any other reply `isLate` holds at once.
          undecidedSinceMs: refusedBy(reply) === undefined ? -Infinity : Infinity,
        });
      // The queue learns of any reply: what came may be too little for the call that asked, but enough for
      // another.
      this.queue.roomCame();
    });
  }
}

/**
 * What one attempt has taken of an upstream's limits, and gives back. The request of the minute stays taken,
 * also if it was not sent, because the count of a window only grows (ledger/window.ts).
 */
export class QuotaHold {
  readonly #counters: UpstreamCounters;
  readonly #queue: QuotaQueue;
  readonly #quotas: TargetQuotas;
  readonly #tokens: number;
  /** Whether a call slot is held. False if calls in flight have no limit. */
  #holdsCallSlot: boolean;
  /** Whether no tokens are held. True if tokens have no limit. */
  #isSettled: boolean;

  constructor(counters: UpstreamCounters, queue: QuotaQueue, quotas: TargetQuotas, tokens: number) {
    const { callsInFlight, tokensPerMinute } = quotas.limits;
    this.#counters = counters;
    this.#queue = queue;
    this.#quotas = quotas;
    this.#tokens = tokens;
    this.#holdsCallSlot = callsInFlight !== undefined;
    this.#isSettled = tokensPerMinute === undefined;
  }

  /** Gives the call slot back, when the attempt is over. Idempotent. */
  giveBackCallSlot(): void {
    if (!this.#holdsCallSlot) return;
    this.#holdsCallSlot = false;
    this.#counters.giveBackCall(this.#quotas.scope);
    this.#queue.roomCame();
  }

  /** The attempt used `tokens`; undefined: perhaps all that it holds. Later calls do nothing. */
  settle(tokens = this.#tokens): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#counters.settle(this.#quotas.scope, this.#tokens, tokens);
    this.#queue.roomCame();
  }
}
