/**
 * The time that one call spends in the queue (quota-queue.ts), and its metrics; and the errors of a call that
 * its upstreams' limits keep out. chat-session.ts makes a QuotaWait when a call first waits. Upstream worker.
 *
 * Must hold: a call may wait several times, if upstreams fail in between, but `queueMs` bounds the sum,
 * except that each wait may go on for up to ASK_MS while the coordinator is asked
 * (test/unit/upstream/chat-session-quotas.test.ts); an owner that throws ends its own call, and nothing that
 * it throws reaches the queue (test/unit/upstream/quota-wait.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { ErrorRecord } from '../core/errors.js';
import type { UpstreamQuotaName } from '../core/quotas.js';
import type { AccountIndex, UpstreamScopeIndex } from '../core/units.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import type { QuotaQueue, WaitingCall } from './quota-queue.js';
import type { NoRoom } from './target-choice.js';
import { ASK_MS } from './upstream-quotas.js';

/** The session, as QuotaWait needs it. `tryNow` calls `ended` before it returns true. */
export interface WaitOwner extends Pick<WaitingCall, 'account' | 'bytes' | 'waitsFor' | 'tryNow' | 'giveUp'> {
  recordQueued(queuedMs: number): void;
  /** The coordinator has not replied yet. */
  isAsking(): boolean;
  /**
   * Another method has thrown, which is a bug. The call fails, and with that calls `leave`. The queue must
   * not throw: all calls of the worker would end.
   */
  crash(error: unknown): void;
}

/**
 * Each wait begins by `begin`, which may be called again once it has ended: by `ended`, `giveUp`, `leave`, or
 * because the owner has thrown.
 */
export class QuotaWait implements WaitingCall {
  readonly account: AccountIndex;
  readonly bytes: number;
  readonly #queue: QuotaQueue;
  readonly #clock: Clock;
  readonly #metrics: UpstreamMetrics;
  readonly #owner: WaitOwner;
  /** Until when the call may wait for its turn, and until when for a reply of the coordinator. */
  #endMs = 0;
  #askEndMs = 0;
  /** Sum of the waits that have ended. */
  #waitedMs = 0;
  /** Undefined while the call does not wait. `slot`: the upstream's in the metrics. */
  #since: { readonly ms: number; readonly slot: number } | undefined;

  constructor(queue: QuotaQueue, clock: Clock, metrics: UpstreamMetrics, owner: WaitOwner) {
    this.account = owner.account;
    this.bytes = owner.bytes;
    this.#queue = queue;
    this.#clock = clock;
    this.#metrics = metrics;
    this.#owner = owner;
  }

  /**
   * May call `giveUp` of the owner before it returns. `asks`: the coordinator is being asked, so the call
   * waits for the reply even if `queueMs` is used up.
   */
  begin({ slot, queueMs, asks }: NoRoom): void {
    const nowMs = this.#clock.monotonicMs();
    this.#since = { ms: nowMs, slot };
    this.#metrics.waitBegun(slot);
    this.#endMs = nowMs + queueMs - this.#waitedMs;
    this.#askEndMs = nowMs + ASK_MS;
    if (this.#endMs > nowMs || asks) this.#queue.add(this);
    else this.giveUp();
  }

  isLate(nowMs: number): boolean {
    // After `#crash` the call stays in the queue until the next look. Its owner failed, and is not called.
    if (this.#since === undefined) return true;
    try {
      return nowMs >= this.#endMs && (nowMs >= this.#askEndMs || !this.#owner.isAsking());
    } catch (error) {
      this.#crash(error);
      return true;
    }
  }

  waitsFor(): readonly UpstreamScopeIndex[] {
    // As in `isLate`. If the call waits for no scope, the queue calls `tryNow`, which lets the call leave.
    if (this.#since === undefined) return [];
    try {
      return this.#owner.waitsFor();
    } catch (error) {
      this.#crash(error);
      return [];
    }
  }

  tryNow(): boolean {
    try {
      // As in `isLate`.
      return this.#since === undefined || this.#owner.tryNow();
    } catch (error) {
      this.#crash(error);
      return true;
    }
  }

  giveUp(): void {
    // After `#crash` the call has failed already, and the queue may still give it up.
    if (this.#since === undefined) return;
    try {
      this.#end(true);
      this.#owner.giveUp();
    } catch (error) {
      this.#crash(error);
    }
  }

  /**
   * The owner's `tryNow` is about to return true: the wait is over, whether an upstream took the call or not.
   */
  ended(): void {
    this.#end(false);
  }

  /** The call is over: leaves the queue, if it waits. */
  leave(): void {
    if (this.#since === undefined) return;
    this.#queue.remove(this);
    this.#end(false);
  }

  /** Ends the wait first: `leave` would change the queue, which may be walking through its calls. */
  #crash(error: unknown): void {
    this.#stop(false);
    this.#owner.crash(error);
  }

  #end(isRefused: boolean): void {
    if (this.#since === undefined) return;
    this.#stop(isRefused);
    this.#owner.recordQueued(this.#waitedMs);
  }

  /** Ends the wait without the owner, which may have thrown. */
  #stop(isRefused: boolean): void {
    if (this.#since === undefined) return;
    const { ms, slot } = this.#since;
    this.#since = undefined;
    const waitedMs = this.#clock.monotonicMs() - ms;
    this.#waitedMs += waitedMs;
    this.#metrics.waitEnded(slot, waitedMs, isRefused);
  }
}

/**
 * All upstreams were at their limits for as long as the call could wait. `isUnknown`: they may have been
 * below, because the coordinator has not replied in time.
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
    message: `what the gateway may ask of the provider of this model ${state}${limit}; retry after ${seconds} seconds. This call is not billed.`,
    retryAfterSeconds: seconds,
  };
}

/** The call may use more tokens than any of its upstreams allows in a minute, so waiting would be in vain. */
export function beyondQuota(tokens: number, tokensMax: number): ErrorRecord {
  return {
    code: 'invalid_parameters',
    message: `this call may use ${tokens} tokens, and the providers of this model allow ${tokensMax} a minute: shorten it, or bound its output lower. It is not billed.`,
  };
}
