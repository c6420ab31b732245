/**
 * Sets a fallback quota aside for each scope that this process served lately, so that the process can go on
 * when the coordinator cannot be reached. The `EqualShare` of the calls creates one (by open-hosts.ts), and
 * starts it when it has joined. It says what was served, grants calls from here once the coordinator is lost,
 * and ends it. Main thread.
 *
 * A process has two nodes at the coordinator: that of its calls, and this one with the fallback quotas,
 * which are no part of the calls' leases. If calls are denied an amount, this node gives back what it holds
 * of that. After a loss of the coordinator it sends nothing until the calls' node has reported what it was
 * granted from here (`mayReport`).
 *
 * At most SCOPES_MAX scopes have a quota; each costs one ask a second. A scope beyond them has none.
 *
 * Must hold: whatever a process holds, the coordinator has on record at one of its two nodes, or for a moment
 * at both; never at none, or it would be granted twice. Test: test/unit/sharing/fallback-coordinator.test.ts
 * (random cuts, random use).
 */
import type { Clock } from '../core/clock.js';
import { CoordinatorLost, type Coordinator, type LeaseReply, type LeaseAsk } from './coordinator.js';
import type { LeaseTimers } from './lease-terms.js';
import { FallbackQuota, type FallbackGrant } from './fallback-quota.js';

/** How often the quotas are reported, and so how old the coordinator's record of them can be. */
const REPORT_MS = 1_000;
/** A scope that was not served for so long gives its quota back. */
const SERVED_MS_MAX = 120_000;
/** An ask costs the server some 50 µs, so the quotas of twenty processes take at most half of its time. */
const SCOPES_MAX = 500;

export interface FallbackOptions {
  /** This node's own end. */
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** How many processes of all hosts serve calls: each sets aside its part of what is left. */
  readonly shares: number;
  readonly nodeExpiryMs: number;
  /** False while the coordinator is lost, or has not heard of all that was granted from here (EqualShare). */
  readonly mayReport: () => boolean;
}

export class FallbackCoordinator {
  readonly #options: FallbackOptions;
  /** By scope. */
  readonly #quotas = new Map<string, FallbackQuota>();
  #stopTimer: (() => void) | undefined;
  #reporting: Promise<void> | undefined;
  #joined = false;
  /** When the last exchange was sent to which the coordinator replied. */
  #reportedMs = -Infinity;
  #closed = false;

  constructor(options: FallbackOptions) {
    this.#options = options;
  }

  /** Starts to join, and tries again while that fails. */
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

  /** Grants to the calls' node, which must report that to the coordinator; undefined if there is nothing. */
  grant(ask: LeaseAsk): FallbackGrant | undefined {
    if (this.#isExpired) return undefined;
    return this.#quotas.get(ask.scope)?.grant(ask, this.#nowMs);
  }

  /**
   * Gives all back, and ends the node. Before, the caller must have reported to the coordinator what was
   * granted from here, because `mayReport` is not asked. Rejects with CoordinatorLost.
   */
  async leave(): Promise<void> {
    this.#stop();
    await this.#reporting;
    if (!this.#joined) return;
    const asks = [...this.#quotas.values()].map((quota) => quota.ask(this.#nowMs, true));
    if (asks.length > 0) await this.#options.coordinator.exchange(asks);
    await this.#options.coordinator.leave();
  }

  /** Sends nothing more. Without `leave` before, the coordinator counts the rest until the node expires. */
  close(): Promise<void> {
    this.#stop();
    return this.#options.coordinator.close();
  }

  get #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }

  /** Whether the coordinator has ended this silent life, so that others may have what it held. */
  get #isExpired(): boolean {
    return this.#nowMs - this.#reportedMs > this.#options.nodeExpiryMs;
  }

  #stop(): void {
    this.#closed = true;
    this.#stopTimer?.();
  }

  #reportAfter(ms: number): void {
    if (this.#closed) return;
    this.#stopTimer?.();
    this.#stopTimer = this.#options.timers.after(ms, () => {
      this.#stopTimer = undefined;
      void this.#onTime();
    });
  }

  /**
   * Reports, and sets the timer of the next report. If one is under way it waits for that one; what has
   * become urgent meanwhile is then reported by the next, REPORT_MS later.
   */
  async #onTime(): Promise<void> {
    this.#reporting ??= this.#report();
    await this.#reporting;
    this.#reporting = undefined;
    if (this.#stopTimer === undefined && (this.#quotas.size > 0 || !this.#joined))
      this.#reportAfter(REPORT_MS);
  }

  /**
   * Reports and asks for all quotas, and again for those that need a second ask. The loss of the coordinator
   * is no error: the next report tries again. Rejects only for a bug, which ends the process.
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
      // The coordinator may have granted to others what this life held.
      this.#joined = false;
      for (const quota of this.#quotas.values()) quota.drop();
    }
  }

  /**
   * Sends an ask for each quota, and hands each its reply: there is one for each ask, in the same order.
   * Removes quotas that are empty and were not served lately. Returns those that want another ask at once.
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
