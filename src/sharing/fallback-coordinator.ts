/**
 * Sets a fallback quota aside for each scope that this process served lately, so that the process can go on
 * when the coordinator cannot be reached. equal-share.ts uses it for the node of calls: it calls `start` when
 * that node has joined, says what was served, grants calls from here once the coordinator is lost, and closes
 * it. open-hosts.ts makes it. Main thread.
 *
 * For calls a process has two nodes at the coordinator: the calls' node, and this node with the fallback
 * quotas, which are no part of the calls' leases. If calls are denied a resource, this node gives back what
 * it holds of that. After a loss of the coordinator this node sends nothing until the calls' node has
 * reported what it was granted from here (`mayReport`).
 *
 * At most SCOPES_MAX scopes have a quota, so one exchange (EXCHANGE_ASKS_MAX) carries the asks of all.
 *
 * Must hold: whatever a process holds, the coordinator has on record at one of these two nodes, or for a
 * moment at both. What is at neither would be granted twice. The unit test makes random cuts and random use.
 */
import type { Clock } from '../core/clock.js';
import { CoordinatorLost, type Coordinator, type LeaseReply, type LeaseAsk } from './coordinator.js';
import type { LeaseTimers } from './lease-terms.js';
import { FallbackQuota, type FallbackGrant } from './fallback-quota.js';

/** How often the quotas are reported: the coordinator's record of them is rarely older. */
const REPORT_MS = 1_000;
/** A scope that was not served for so long gives its quota back. */
const SERVED_MS_MAX = 120_000;
/** A scope costs an ask a second, so the server some 50 µs: twenty processes take at most half its time. */
const SCOPES_MAX = 500;

export interface FallbackOptions {
  /** The connection of this node. No other node uses it, and `close` closes it. */
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** How many processes of all hosts serve calls. Each sets its part of what is left aside. */
  readonly shares: number;
  /** After so long a silence the coordinator may end this node's life. */
  readonly nodeExpiryMs: number;
  /** False while the coordinator is lost, or has not heard of all that was granted from here. */
  readonly mayReport: () => boolean;
}

export class FallbackCoordinator {
  readonly #options: FallbackOptions;
  /** By the name of the scope; at most SCOPES_MAX. */
  readonly #quotas = new Map<string, FallbackQuota>();
  #stopTimer: (() => void) | undefined;
  /** The report that is under way. */
  #reporting: Promise<void> | undefined;
  #joined = false;
  /** When the last exchange left to which the coordinator replied. */
  #reportedMs = -Infinity;
  #closed = false;

  constructor(options: FallbackOptions) {
    this.#options = options;
  }

  /** Begins to join, and tries again every second while that fails. */
  start(): void {
    this.#reportAfter(0);
  }

  /** Call it when the coordinator has replied to an ask of calls. */
  served(ask: LeaseAsk, reply: LeaseReply): void {
    const nowMs = this.#nowMs;
    let quota = this.#quotas.get(ask.scope);
    if (quota === undefined) {
      if (this.#quotas.size >= SCOPES_MAX) return;
      quota = new FallbackQuota(ask.scope, this.#options.shares, nowMs);
      this.#quotas.set(ask.scope, quota);
    }
    if (quota.serve(ask, reply, nowMs)) this.#reportAfter(0);
    if (this.#stopTimer === undefined) this.#reportAfter(REPORT_MS);
  }

  /** Whether there is anything to grant. */
  get holdsAny(): boolean {
    const nowMs = this.#nowMs;
    return !this.#isExpired && [...this.#quotas.values()].some((quota) => quota.holds(nowMs));
  }

  /** Grants to the calls' node, which must report that to the coordinator; undefined if there is no quota. */
  grant(ask: LeaseAsk): FallbackGrant | undefined {
    if (this.#isExpired) return undefined;
    return this.#quotas.get(ask.scope)?.grant(ask, this.#nowMs);
  }

  /**
   * Gives all back, and ends the node. First report to the coordinator what was granted from here, because
   * `leave` does not ask `mayReport`. Rejects with CoordinatorLost. Call `close` in any case.
   */
  async leave(): Promise<void> {
    this.#stop();
    await this.#reporting;
    if (!this.#joined) return;
    const asks = [...this.#quotas.values()].map((quota) => quota.ask(this.#nowMs, true));
    if (asks.length > 0) await this.#options.coordinator.exchange(asks);
    await this.#options.coordinator.leave();
  }

  /** Sends nothing more. Without `leave` the coordinator counts the rest until the node expires. */
  close(): Promise<void> {
    this.#stop();
    return this.#options.coordinator.close();
  }

  get #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }

  /** Whether the coordinator may have ended this silent life, and granted to others what it held. */
  get #isExpired(): boolean {
    return this.#nowMs - this.#reportedMs > this.#options.nodeExpiryMs;
  }

  #stop(): void {
    this.#closed = true;
    this.#stopTimer?.();
  }

  /** Sets the only timer anew. */
  #reportAfter(ms: number): void {
    if (this.#closed) return;
    this.#stopTimer?.();
    this.#stopTimer = this.#options.timers.after(ms, () => {
      this.#stopTimer = undefined;
      void this.#onTime();
    });
  }

  /**
   * Reports, and sets the timer of the next report. If a report is under way, waits for that one instead; the
   * next report, REPORT_MS later, has what became urgent meanwhile.
   */
  async #onTime(): Promise<void> {
    this.#reporting ??= this.#report();
    await this.#reporting;
    this.#reporting = undefined;
    if (this.#stopTimer === undefined && (this.#quotas.size > 0 || !this.#joined))
      this.#reportAfter(REPORT_MS);
  }

  /**
   * Joins if need be, and asks for all quotas, and again for those that need a second ask. A loss of the
   * coordinator is no error: the next report tries again. Rejects only for a bug, which ends the process.
   */
  async #report(): Promise<void> {
    const { coordinator, mayReport } = this.#options;
    if (!mayReport()) return;
    try {
      if (!this.#joined) await coordinator.join();
      this.#joined = true;
      const again = await this.#exchange([...this.#quotas.values()]);
      if (again.length > 0 && mayReport()) await this.#exchange(again);
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
      if (error.reason !== 'unknown_node') return;
      // This life has ended, so the coordinator may have granted to others what it held.
      this.#joined = false;
      for (const quota of this.#quotas.values()) quota.drop();
    }
  }

  /**
   * Sends an ask for each quota, and hands each quota its reply: replies come in the order of the asks.
   * Removes empty quotas that were not served lately. Returns those that want another ask at once.
   */
  async #exchange(quotas: readonly FallbackQuota[]): Promise<FallbackQuota[]> {
    if (quotas.length === 0) return [];
    const sentMs = this.#nowMs;
    const asks = quotas.map((quota) => quota.ask(sentMs, this.#isForgotten(quota)));
    const { answers: replies } = await this.#options.coordinator.exchange(asks);
    this.#reportedMs = sentMs;
    return quotas.filter((quota, index) => {
      const asksMore = quota.take(replies[index]!, sentMs) || quota.returns;
      if (!asksMore && quota.isEmpty && this.#isForgotten(quota)) this.#quotas.delete(quota.scope);
      return asksMore;
    });
  }

  #isForgotten({ servedMs }: FallbackQuota): boolean {
    return this.#nowMs - servedMs >= SERVED_MS_MAX;
  }
}
