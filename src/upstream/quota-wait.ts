/**
 * The time that one call spends in the queue (quota-queue.ts), with its metrics, and the errors of a call
 * that limits of upstreams keep out. chat-session.ts makes one when a call first waits. Upstream worker.
 *
 * Must hold: a call may wait several times, if upstreams fail in between. `queueMs` bounds the sum of its
 * waits. Beyond `queueMs` a wait goes on only while the coordinator is asked, for up to ASK_MS from its begin
 * (test/unit/upstream/chat-session-quotas.test.ts). An owner that throws ends its own call, and nothing that
 * it throws reaches the queue (test/unit/upstream/quota-wait.test.ts).
 */
import type { Clock } from '../core/clock.js';
import { invariant, secondsText, type ErrorRecord } from '../core/errors.js';
import type { UpstreamQuotaName } from '../core/quotas.js';
import type { AccountIndex, UpstreamScopeIndex } from '../core/units.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import type { QuotaQueue, WaitingCall } from './quota-queue.js';
import type { NoRoom } from './balancer.js';
import { ASK_MS } from './upstream-quotas.js';

/**
 * The session, as QuotaWait needs it. Its `tryNow` calls `QuotaWait.end` before it returns true, or the
 * metrics count the call as waiting until the call is over.
 */
export interface WaitOwner extends Pick<WaitingCall, 'account' | 'bytes' | 'waitsFor' | 'tryNow' | 'giveUp'> {
  /** Called at the end of a wait. `queuedMs`: the sum of all waits of the call so far, this one included. */
  recordQueued(queuedMs: number): void;
  /** Whether the coordinator may have what is missing: it was not asked, or has not replied yet. */
  mayBeGranted(): boolean;
  /** Another method has thrown: a bug. Fails the call, perhaps by `leave`. The queue's other calls go on. */
  crash(error: unknown): void;
}

type WaitEnd = 'given up' | 'over';

/**
 * A wait begins by `begin`, and ends once:
 *
 *     end      the owner calls it, in its `tryNow`: an upstream has taken the call, or none ever will
 *     giveUp   the queue calls it: the wait is late, or the queue is full
 *     leave    the owner calls it: the call is over, mostly because its client has gone
 *     #crash   a method of the owner has thrown
 *
 * Then `begin` may be called again. The first three call `recordQueued` of the owner.
 */
export class QuotaWait implements WaitingCall {
  readonly account: AccountIndex;
  /** Length of the call's body, by which the queue is bounded. */
  readonly bytes: number;
  readonly #queue: QuotaQueue;
  readonly #clock: Clock;
  readonly #metrics: UpstreamMetrics;
  readonly #owner: WaitOwner;
  /** Until when the call may wait for its turn (monotonic). */
  #turnEndMs = 0;
  /** Until when it may wait for a reply of the coordinator, even after `#turnEndMs` (monotonic). */
  #replyEndMs = 0;
  /** Sum of the waits that have ended. */
  #waitedMs = 0;
  /** The wait that goes on; undefined if there is none. `slot`: the upstream's in the metrics. */
  #current: { readonly beganMs: number; readonly slot: number } | undefined;

  constructor(queue: QuotaQueue, clock: Clock, metrics: UpstreamMetrics, owner: WaitOwner) {
    this.account = owner.account;
    this.bytes = owner.bytes;
    this.#queue = queue;
    this.#clock = clock;
    this.#metrics = metrics;
    this.#owner = owner;
  }

  /**
   * Throws while a wait goes on. May call `giveUp` of the owner before it returns. Of NoRoom
   * (balancer.ts): `slot` is of an upstream, for its metrics; `queueMs` is for all waits of the call; if
   * `mayBeGranted`, the call waits for the coordinator's reply even if `queueMs` is used up.
   */
  begin({ slot, queueMs, mayBeGranted }: NoRoom): void {
    invariant(this.#current === undefined, 'a call waits once at a time');
    const nowMs = this.#clock.monotonicMs();
    this.#current = { beganMs: nowMs, slot };
    this.#metrics.waitBegun(slot);
    this.#turnEndMs = nowMs + queueMs - this.#waitedMs;
    this.#replyEndMs = nowMs + ASK_MS;
    if (this.#turnEndMs > nowMs || mayBeGranted) this.#queue.add(this);
    else this.giveUp();
  }

  isLate(nowMs: number): boolean {
    // After `#crash` the call stays in the queue until the next sweep. Its owner is not called again.
    if (this.#current === undefined) return true;
    try {
      return nowMs >= this.#turnEndMs && (nowMs >= this.#replyEndMs || !this.#owner.mayBeGranted());
    } catch (error) {
      this.#crash(error);
      return true;
    }
  }

  waitsFor(): readonly UpstreamScopeIndex[] {
    // After `#crash`, as in `isLate`. Without scopes the queue calls `tryNow`, and the call leaves.
    if (this.#current === undefined) return [];
    try {
      return this.#owner.waitsFor();
    } catch (error) {
      this.#crash(error);
      return [];
    }
  }

  tryNow(): boolean {
    try {
      // After `#crash`, as in `isLate`: true lets the call leave the queue.
      return this.#current === undefined || this.#owner.tryNow();
    } catch (error) {
      this.#crash(error);
      return true;
    }
  }

  giveUp(): void {
    // After `#crash` the call has failed already, and the queue may still give it up.
    if (this.#current === undefined) return;
    try {
      this.#endAndRecord('given up');
      this.#owner.giveUp();
    } catch (error) {
      this.#crash(error);
    }
  }

  end(): void {
    this.#endAndRecord('over');
  }

  leave(): void {
    if (this.#current === undefined) return;
    this.#queue.remove(this);
    this.#endAndRecord('over');
  }

  /** Ends the wait first: a `leave` in `crash` would change the queue, which may be walking its calls. */
  #crash(error: unknown): void {
    this.#end('over');
    this.#owner.crash(error);
  }

  #endAndRecord(how: WaitEnd): void {
    if (this.#current === undefined) return;
    this.#end(how);
    this.#owner.recordQueued(this.#waitedMs);
  }

  /** Ends the wait and calls no method of the owner, which may have thrown. */
  #end(how: WaitEnd): void {
    if (this.#current === undefined) return;
    const { beganMs, slot } = this.#current;
    this.#current = undefined;
    const waitedMs = this.#clock.monotonicMs() - beganMs;
    this.#waitedMs += waitedMs;
    this.#metrics.waitEnded(slot, waitedMs, how === 'given up');
  }
}

/**
 * All upstreams were at their limits for as long as the call could wait. `quota`: the limit that was
 * reached; undefined if not known. `seconds`: when to retry. `isUnknown`: the coordinator has not said
 * that a limit is used up, so the upstreams may have been below their limits.
 */
export function noRoomError(
  quota: UpstreamQuotaName | undefined,
  seconds: number,
  isUnknown = false,
): ErrorRecord {
  const limit = quota === undefined ? '' : ` (${quota})`;
  const state = isUnknown ? 'could not be found out in time' : 'is used up';
  return {
    code: 'overloaded',
    message: `what the gateway may ask of the provider of this model ${state}${limit}; retry after ${secondsText(seconds)}. This call is not billed.`,
    retryAfterSeconds: seconds,
  };
}

/** The call may use more tokens than any of its upstreams allows in a minute, so waiting would not help. */
export function beyondQuotaError(tokens: number, tokensMax: number): ErrorRecord {
  return {
    code: 'invalid_parameters',
    message: `this call may use ${tokens} tokens, and the providers of this model allow ${tokensMax} a minute: shorten it, or bound its output lower. It is not billed.`,
  };
}
