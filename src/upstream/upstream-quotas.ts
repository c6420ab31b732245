/**
 * The limits of upstreams, as a worker's calls take from them: requests and tokens of the minute, calls in
 * flight, by scope (a provider's key). All workers share the counters (ledger/upstream-counters.ts); each
 * worker has a queue and an UpstreamQuotas of its own. balancer.ts takes, and a TakenTarget gives calls and
 * tokens back. Upstream worker.
 *
 * Must hold: each part of TakenQuotas is given back once. A worker asks the coordinator one question a scope
 * at a time: the question says what one call lacks, and calls that still lack something after the reply ask
 * again (test/unit/upstream/upstream-quotas.test.ts). A LeaseChannel never rejects, or the worker would
 * not ask for the scope again.
 */
import { type LeaseChannel, refusedBy } from '../channel/lease-channel.js';
import type { Clock } from '../core/clock.js';
import type { UpstreamScopeIndex } from '../core/units.js';
import type { UpstreamCounters, Shortage } from '../ledger/upstream-counters.js';
import { QuotaQueue } from './quota-queue.js';
import type { TargetQuotas } from './target.js';

/**
 * The pause after a question that brought nothing: shorter than the time after which other processes give
 * idle leases back, IDLE_MS_SCARCE of sharing/lease-terms.ts at the earliest.
 */
const ASK_AGAIN_MS = 250;
/**
 * If limits are shared with other processes, a call that may not wait still waits so long for the
 * coordinator's reply, which takes milliseconds. A denial comes earlier, because UPSTREAM_WAIT_MS of
 * sharing/lease-waits.ts is shorter (test/unit/sharing/lease-manager.test.ts).
 */
export const ASK_MS = 1_000;

/** The last question about a scope. There is none before the first question, nor after a grant. */
interface Question {
  /** Whether the reply has not come yet. */
  readonly isOpen: boolean;
  /** Once the reply has come: when the next question may be asked (monotonic). */
  readonly nextMs: number;
  /**
   * Until when the limit counts as used up, because a reply said so (monotonic): Infinity from that reply to
   * the next question, which may be open for ASK_MS before it counts no longer; 0 if no reply said so.
   */
  readonly refusedUntilMs: number;
}

/** Why the limits of an upstream keep a call out (see Shortage), and what to expect of the coordinator. */
interface UpstreamShortage extends Omit<Shortage, 'mayAskForMore'> {
  readonly mayBeGranted: boolean;
  readonly isUnknown: boolean;
}

/** Who takes: a new call, or one that the queue serves, which may take of scopes that calls wait for. */
export type TakeBy = 'call' | 'queue';

/** Asks the main thread for leases, if limits are shared with other processes. */
type AskLease = Pick<LeaseChannel, 'ask'>;

export class UpstreamQuotas {
  readonly queue: QuotaQueue;
  readonly #counters: UpstreamCounters;
  readonly #clock: Clock;
  readonly #leases: AskLease | undefined;
  /** At most one for each scope, so UPSTREAM_SCOPES_MAX (core/limits.ts) bounds them. */
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
   * and this call has not waited. `tokens`: the most that the call may use.
   */
  take(quotas: TargetQuotas, tokens: number, by: TakeBy): TakenQuotas | undefined {
    const { scope, limits } = quotas;
    if (by === 'call' && this.queue.isAwaited(scope)) return undefined;
    const shortage = this.#counters.take(scope, limits, tokens);
    if (shortage === undefined) return new TakenQuotas(this.#counters, this.queue, quotas, tokens);
    if (shortage.mayAskForMore) this.#ask(scope, tokens);
    return undefined;
  }

  /**
   * Why `take` gives nothing now; the session then decides whether the call waits. `mayBeGranted`: the
   * coordinator's reply is under way; or nothing is missing any more, and `take` only kept the call from
   * overtaking. `isUnknown`: the coordinator has not said that the limit is used up.
   */
  shortageOf({ scope, limits }: TargetQuotas, tokens: number): UpstreamShortage {
    const { mayAskForMore, ...shortage } = this.#counters.shortageOf(scope, limits, tokens);
    const { refusedUntilMs = 0 } = this.#questions.get(scope) ?? {};
    const hasLease = this.#leases !== undefined && shortage.quota === undefined;
    return {
      ...shortage,
      mayBeGranted: (hasLease || mayAskForMore) && this.#isUnanswered(scope),
      isUnknown: hasLease || (mayAskForMore && this.#clock.monotonicMs() >= refusedUntilMs),
    };
  }

  /** Whether `take` has nothing now for a call that has not waited, and it is no use to ask for more. */
  isFull({ scope, limits }: TargetQuotas, tokens: number): boolean {
    if (this.queue.isAwaited(scope)) return true;
    // The coordinator is never asked for more than the limit.
    if (tokens > (limits.tokensPerMinute ?? Infinity)) return true;
    if (!this.#counters.isShort(scope, limits, tokens)) return false;
    if (!this.#counters.mayAskForMore(scope, limits)) return true;
    const question = this.#questions.get(scope);
    return question !== undefined && !question.isOpen && question.nextMs > this.#clock.monotonicMs();
  }

  /** Whether the coordinator may have what is missing. Cheap: the queue asks for each call that waits. */
  mayBeGranted({ scope, limits }: TargetQuotas): boolean {
    return this.#isUnanswered(scope) && this.#counters.mayAskForMore(scope, limits);
  }

  /** Whether the worker has not asked about the scope, or has no reply yet. */
  #isUnanswered(scope: UpstreamScopeIndex): boolean {
    return this.#questions.get(scope)?.isOpen !== false;
  }

  /** Asks the coordinator, for all calls of the worker. */
  #ask(scope: UpstreamScopeIndex, tokens: number): void {
    if (this.#leases === undefined) return;
    const nowMs = this.#clock.monotonicMs();
    const { isOpen = false, nextMs = 0, refusedUntilMs = 0 } = this.#questions.get(scope) ?? {};
    if (isOpen || nextMs > nowMs) return;
    this.#questions.set(scope, {
      isOpen: true,
      nextMs: Infinity,
      refusedUntilMs: Math.min(refusedUntilMs, nowMs + ASK_MS),
    });
    const lack = { kind: 'upstream', tokens } as const;
    void this.#leases.ask({ scopes: [{ kind: 'upstream', index: scope }], need: lack }).then((reply) => {
      // 'try': as much as the call lacks has come. If another call takes it first, the next question needs
      // no pause, because the exchanges with the coordinator bound how many questions there are.
      if (reply === 'try') this.#questions.delete(scope);
      else {
        const repliedMs = this.#clock.monotonicMs();
        this.#questions.set(scope, {
          isOpen: false,
          nextMs: repliedMs + ASK_AGAIN_MS,
          refusedUntilMs: refusedBy(reply) === undefined ? 0 : Infinity,
        });
      }
      // After any reply: what came may be too little for the call that asked, but enough for another.
      this.queue.onRoom();
    });
  }
}

/**
 * What one attempt has taken of an upstream's limits, and gives back. The request of the minute stays taken,
 * also if it was not sent, because the count of a window only grows (ledger/window.ts).
 */
export class TakenQuotas {
  readonly #counters: UpstreamCounters;
  readonly #queue: QuotaQueue;
  readonly #quotas: TargetQuotas;
  readonly #tokens: number;
  /** Whether one of the calls in flight is still to be given back, and whether tokens are. */
  #hasCall: boolean;
  #hasTokens: boolean;

  constructor(counters: UpstreamCounters, queue: QuotaQueue, quotas: TargetQuotas, tokens: number) {
    const { callsInFlight, tokensPerMinute } = quotas.limits;
    this.#counters = counters;
    this.#queue = queue;
    this.#quotas = quotas;
    this.#tokens = tokens;
    this.#hasCall = callsInFlight !== undefined;
    this.#hasTokens = tokensPerMinute !== undefined;
  }

  /** Gives the call in flight back, when the attempt is over. Later calls do nothing. */
  giveBackCall(): void {
    if (!this.#hasCall) return;
    this.#hasCall = false;
    this.#counters.giveBackCall(this.#quotas.scope);
    this.#queue.onRoom();
  }

  /** The attempt used `tokens`; undefined: perhaps all that it has taken. Later calls do nothing. */
  settle(tokens = this.#tokens): void {
    if (!this.#hasTokens) return;
    this.#hasTokens = false;
    this.#counters.settle(this.#quotas.scope, this.#tokens, tokens);
    this.#queue.onRoom();
  }
}
