/**
 * Counts a worker's left calls: those whose clients have left and whose upstreams may finish all the same.
 * chat-session.ts calls `begin` when a client leaves, and `end` of the LeftCall. Upstream worker.
 *
 * Must hold: each LeftCall is ended, or it counts for ever. Once LEFT_CALLS_MAX count, the worker lets no
 * upstream finish (test/unit/upstream/chat-session-finish.test.ts).
 */
import { LEFT_CALLS_MAX, LEFT_CALLS_OF_ACCOUNT_MAX } from '../core/limits.js';
import type { AccountIndex } from '../core/units.js';
import type { EndWithoutClient } from '../telemetry/metrics-layout.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import type { UpstreamTarget } from './target.js';

export class LeftCalls {
  readonly #metrics: Pick<UpstreamMetrics, 'countLeft'>;
  #count = 0;
  /** How many left calls each account has. An account without one has no entry. */
  readonly #callsByAccount = new Map<AccountIndex, number>();

  constructor(metrics: Pick<UpstreamMetrics, 'countLeft'>) {
    this.#metrics = metrics;
  }

  /**
   * The client of a call that is charged has left. Returns undefined if the caller must abort the upstream:
   * by the upstream's settings, because the call must end `atOnce`, or because too many calls count already.
   */
  begin(target: UpstreamTarget, account: AccountIndex, atOnce: boolean): LeftCall | undefined {
    const { slot, whenClientLeaves } = target;
    const accountCalls = this.#callsByAccount.get(account) ?? 0;
    const isFull = this.#count >= LEFT_CALLS_MAX || accountCalls >= LEFT_CALLS_OF_ACCOUNT_MAX;
    if (whenClientLeaves === 'abort' || atOnce || isFull) {
      this.#metrics.countLeft(slot, 'aborted');
      return undefined;
    }
    this.#add(account, 1);
    return new LeftCall((reason) => {
      this.#metrics.countLeft(slot, reason);
      this.#add(account, -1);
    });
  }

  #add(account: AccountIndex, change: 1 | -1): void {
    const accountCalls = (this.#callsByAccount.get(account) ?? 0) + change;
    this.#count += change;
    if (accountCalls > 0) this.#callsByAccount.set(account, accountCalls);
    else this.#callsByAccount.delete(account);
  }
}

export class LeftCall {
  #onEnd: ((reason: EndWithoutClient) => void) | undefined;

  constructor(onEnd: (reason: EndWithoutClient) => void) {
    this.#onEnd = onEnd;
  }

  /** The call has ended for that reason, so it counts no longer. A second `end` does nothing. */
  end(reason: EndWithoutClient): void {
    this.#onEnd?.(reason);
    this.#onEnd = undefined;
  }
}
