/**
 * The queue of a worker's calls that wait because their upstreams are at their limits. The queue is fair by
 * account (core/fair-queue.ts), so that an account with many calls delays only itself. quota-wait.ts adds a
 * session's call and removes it; upstream-quotas.ts owns the queue. Upstream worker.
 *
 * The queue serves calls (lets them take an upstream) when this worker gives something back, which
 * upstream-quotas.ts reports by `onRoom`. It does not learn what other threads, processes and hosts give
 * back, nor what leaves the window of a minute. So while calls wait, the queue sweeps every SWEEP_PERIOD_MS.
 *
 * Must hold (test/unit/upstream/quota-queue.test.ts):
 * - A later call does not overtake: new calls do not take of a scope that a call waits for
 *   (upstream-quotas.ts asks `isAwaited`). Only a call that may wait no longer overtakes, by its last try.
 * - Each call leaves by `tryNow`, `giveUp` or `remove`. The weights bound the bytes of all bodies and the
 *   number of calls (core/limits.ts).
 * - Besides last tries, a sweep tries only calls that it serves, and at most one more for each scope, however
 *   many calls wait: all streams of the worker stand still during a sweep.
 */
import type { Clock } from '../core/clock.js';
import { FairQueue } from '../core/fair-queue.js';
import { UPSTREAM_QUEUE_BYTES_MAX, UPSTREAM_QUEUE_CALL_BYTES } from '../core/limits.js';
import type { AccountIndex, UpstreamScopeIndex } from '../core/units.js';

/** The queue notices room that came from elsewhere after this time at most. */
const SWEEP_PERIOD_MS = 20;

/**
 * A call that waits (quota-wait.ts). Once `tryNow` has returned true or `giveUp` was called, the call has
 * left the queue, and may be added again. Neither method may throw or change the queue.
 */
export interface WaitingCall {
  readonly account: AccountIndex;
  /** UTF-8 length of the call's body. */
  readonly bytes: number;
  /** Whether the call has waited for as long as it may. `nowMs` is monotonic. */
  isLate(nowMs: number): boolean;
  /**
   * The scopes of the upstreams that may serve the call; a reload may change them. Without a scope, `tryNow`
   * lets the call leave. Must be cheap: each sweep asks every call.
   */
  waitsFor(): readonly UpstreamScopeIndex[];
  /**
   * Takes an upstream, even if other calls wait for it. False if no upstream has room. A try takes some 10
   * µs, so a sweep leaves out a call if earlier calls have failed for all of its scopes.
   */
  tryNow(): boolean;
  /** The call may wait no longer, or the queue is full and other accounts have less in it. */
  giveUp(): void;
}

export class QuotaQueue {
  readonly #clock: Clock;
  /** One account may fill the queue. Then calls of other accounts push out its last calls. */
  readonly #calls = new FairQueue<AccountIndex, WaitingCall>({
    weightMax: UPSTREAM_QUEUE_BYTES_MAX,
    ownerWeightMax: UPSTREAM_QUEUE_BYTES_MAX,
  });
  /** The scopes that calls wait for. The next sweep removes those of calls that have left. */
  #awaited = new Set<UpstreamScopeIndex>();
  #timer: NodeJS.Timeout | undefined;
  /** Calls are served at the end of this event-loop turn, because `onRoom` was called. */
  #isServeDue = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#calls.size;
  }

  /** Whether a call waits for that scope. */
  isAwaited(scope: UpstreamScopeIndex): boolean {
    return this.#awaited.has(scope);
  }

  /** The call waits from now on. If the queue is full, its `giveUp` may be called before this returns. */
  add(call: WaitingCall): void {
    const dropped = this.#calls.offer(call.account, call, call.bytes + UPSTREAM_QUEUE_CALL_BYTES);
    const scopes = call.waitsFor();
    // A call that is dropped at once waits for nothing. Its scopes would keep new calls from what has room.
    if (!dropped.includes(call)) for (const scope of scopes) this.#awaited.add(scope);
    for (const droppedCall of dropped) droppedCall.giveUp();
    if (this.#calls.size > 0) this.#scheduleSweep();
    else this.#awaited.clear();
  }

  /** The call no longer waits, mostly because its client has left. */
  remove(call: WaitingCall): void {
    this.#calls.remove(call.account, call);
    if (this.#calls.size === 0) this.#awaited.clear();
  }

  /** Something was given back. After this turn serves calls until a try has failed for each awaited scope. */
  onRoom(): void {
    if (this.#isServeDue || this.#calls.size === 0) return;
    this.#isServeDue = true;
    setImmediate(() => {
      this.#isServeDue = false;
      this.#serve('until_full');
    });
  }

  /**
   * Tries the calls that may wait no longer once more, and gives up those that fail. Then serves the other
   * calls in turn, as far as the limits allow. A sweep visits all calls, because after a reload or a cooldown
   * other upstreams may serve a call than at the last sweep. The timer calls it; public for tests.
   */
  sweep(): void {
    this.#giveUpLate();
    this.#serve('all');
    if (this.#calls.size > 0) this.#scheduleSweep();
  }

  /**
   * Serves, in turn, the calls that can be served. If a call cannot, later calls do not take of its scopes.
   * Served calls are removed after the loop, because `inTurn` must not go on once the queue has changed.
   * `until_full`: stops once calls have failed for all scopes that are awaited.
   */
  #serve(visits: 'all' | 'until_full'): void {
    const served: (readonly [AccountIndex, WaitingCall])[] = [];
    const fullScopes = new Set<UpstreamScopeIndex>();
    let areAllFull = false;
    for (const [account, call] of this.#calls.inTurn()) {
      const scopes = call.waitsFor();
      if (scopes.length > 0 && scopes.every((scope) => fullScopes.has(scope))) continue;
      if (call.tryNow()) {
        served.push([account, call]);
        continue;
      }
      for (const scope of scopes) fullScopes.add(scope);
      areAllFull = visits === 'until_full' && [...this.#awaited].every((scope) => fullScopes.has(scope));
      if (areAllFull) break;
    }
    for (const [account, call] of served) this.#calls.serve(account, call);
    // If all calls were visited, those that stay wait for `fullScopes` alone.
    if (areAllFull) for (const scope of fullScopes) this.#awaited.add(scope);
    else this.#awaited = fullScopes;
  }

  /** Must run before `#serve`, which makes `#awaited` anew from the calls that are left. */
  #giveUpLate(): void {
    const nowMs = this.#clock.monotonicMs();
    const late = [...this.#calls.inTurn()].filter(([, call]) => call.isLate(nowMs));
    for (const [account, call] of late) {
      this.#calls.remove(account, call);
      if (!call.tryNow()) call.giveUp();
    }
  }

  /** `unref`: calls that wait do not keep the thread alive when it is to end. */
  #scheduleSweep(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.sweep();
    }, SWEEP_PERIOD_MS).unref();
  }
}
