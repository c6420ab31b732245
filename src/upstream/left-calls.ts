/**
 * Counts a worker's left calls: those whose clients have left and whose upstreams may finish all the same.
 * chat-session.ts calls `begin` when a client leaves, and `end` of the LeftCall. Upstream worker.
 *
 * Must hold: each LeftCall is ended, or it counts until the worker ends. Once the budget of all workers is
 * used up, no worker lets an upstream finish (test/unit/upstream/chat-session-finish.test.ts).
 */
import { LEFT_CALLS_OF_ACCOUNT_MAX } from '../core/limits.js';
import type { AccountIndex } from '../core/units.js';
import type { EndWithoutClient } from '../telemetry/metrics-layout.js';
import type { UpstreamMetrics } from '../telemetry/metrics-writers.js';
import type { UpstreamTarget } from './target.js';
import type { WorkerBudget } from './worker-budget.js';

export class LeftCalls {
  readonly #metrics: Pick<UpstreamMetrics, 'countLeft'>;
  /** One for each left call. */
  readonly #budget: WorkerBudget;
  /** How many left calls each account has. An account without one has no entry. */
  readonly #callsByAccount = new Map<AccountIndex, number>();

  constructor(metrics: Pick<UpstreamMetrics, 'countLeft'>, budget: WorkerBudget) {
    this.#metrics = metrics;
    this.#budget = budget;
  }

  /**
   * The client of a call that is charged has left. Returns undefined if the session must abort the upstream:
   * by the upstream's settings, because the call must end `atOnce`, or because too many calls count already.
   */
  begin(target: UpstreamTarget, account: AccountIndex, atOnce: boolean): LeftCall | undefined {
    const { slot, whenClientLeaves } = target;
    const accountCalls = this.#callsByAccount.get(account) ?? 0;
    const isAccountFull = accountCalls >= LEFT_CALLS_OF_ACCOUNT_MAX;
    if (whenClientLeaves === 'abort' || atOnce || isAccountFull || !this.#budget.change(0, 1)) {
      this.#metrics.countLeft(slot, 'aborted');
      return undefined;
    }
    this.#callsByAccount.set(account, accountCalls + 1);
    return new LeftCall((reason) => {
      this.#metrics.countLeft(slot, reason);
      this.#budget.change(1, 0);
      const remaining = this.#callsByAccount.get(account)! - 1;
      if (remaining > 0) this.#callsByAccount.set(account, remaining);
      else this.#callsByAccount.delete(account);
    });
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
