/**
 * Sets a fallback quota aside for each scope that this process served lately, so that the process can go on
 * when the coordinator cannot be reached. open-hosts.ts makes it. equal-share.ts calls `start` when the node
 * of calls has joined, `recordReply` after each exchange of that node, and `grant` once the coordinator is
 * lost. Main thread.
 *
 * For calls a process has two nodes at the coordinator: _the calls' node_, which has their leases, and _this
 * node_, which has the fallback quotas. If the coordinator denies a resource to calls, this node gives back
 * what it holds of the resource. After a loss of the coordinator this node sends nothing until the calls'
 * node has reported what the fallback quotas granted it meanwhile (`mayReport`).
 *
 * At most SCOPES_MAX scopes have a quota, so one exchange (EXCHANGE_ASKS_MAX) carries the asks of all.
 *
 * Must hold: the coordinator has on record, at one of these two nodes, all that the process holds; for a
 * moment it may be at both. What is on record at neither would be granted twice. (The unit test makes random
 * cuts and random use.)
 */
import type { Clock } from '../core/clock.js';
import { CoordinatorLost, type Coordinator, type LeaseReply, type LeaseAsk } from './coordinator.js';
import type { LeaseTimers } from './lease-terms.js';
import { FallbackQuota, type FallbackGrant } from './fallback-quota.js';

/** How often the quotas are reported: the coordinator's record of them is no older. */
const REPORT_MS = 1_000;
/** A scope that was not served for so long gives its quota back. */
const SERVED_MS_MAX = 120_000;
/**
 * A scope costs an ask a second, which takes the server some 50 µs. So twenty processes with so many scopes
 * take half of the server's time.
 */
const SCOPES_MAX = 500;

interface FallbackOptions {
  /** The connection of this node. No other node uses it, and `close` closes it. */
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** How many processes of all hosts serve calls. Each sets aside its share of what remains. */
  readonly shares: number;
  /** After so long a silence the coordinator may end this node's life. */
  readonly nodeExpiryMs: number;
  /** False while the coordinator is lost, or has not heard of all that fallback quotas granted. */
  readonly mayReport: () => boolean;
}

export class FallbackCoordinator {
  readonly #options: FallbackOptions;
  readonly #quotas = new Map<string, FallbackQuota>(); // by the name of the scope; at most SCOPES_MAX
  #stopTimer: (() => void) | undefined; // stops the timer of the next report; undefined if none runs
  #reporting: Promise<void> | undefined; // the report that is under way
  #hasJoined = false;
  #reportedMs = -Infinity; // when the last exchange left to which the coordinator replied
  #isClosed = false;

  constructor(options: FallbackOptions) {
    this.#options = options;
  }

  /** Begins to join, and tries again every second while that fails. */
  start(): void {
    this.#reportAfter(0);
  }

  /** Called when the coordinator itself has replied to an ask of the calls' node. */
  recordReply(ask: LeaseAsk, reply: LeaseReply): void {
    const nowMs = this.#nowMs;
    let quota = this.#quotas.get(ask.scope);
    if (quota === undefined) {
      if (this.#quotas.size >= SCOPES_MAX) return;
      quota = new FallbackQuota(ask.scope, this.#options.shares, nowMs);
      this.#quotas.set(ask.scope, quota);
    }
    // If calls were denied what the quota holds, it gives that back at once.
    if (quota.recordReply(ask, reply, nowMs)) this.#reportAfter(0);
    if (this.#stopTimer === undefined) this.#reportAfter(REPORT_MS);
  }

  get holdsAny(): boolean {
    const nowMs = this.#nowMs;
    return !this.#isExpired && [...this.#quotas.values()].some((quota) => quota.holdsAnyAt(nowMs));
  }

  /** Grants to the calls' node, which must report the grant to the coordinator; undefined without a quota. */
  grant(ask: LeaseAsk): FallbackGrant | undefined {
    if (this.#isExpired) return undefined;
    return this.#quotas.get(ask.scope)?.grant(ask, this.#nowMs);
  }

  /**
   * Gives all back, and ends the node. The caller first reports to the coordinator what `grant` returned,
   * because `leave` does not ask `mayReport`. Rejects with CoordinatorLost. Call `close` in any case.
   */
  async leave(): Promise<void> {
    this.#stop();
    await this.#reporting;
    if (!this.#hasJoined) return;
    const asks = [...this.#quotas.values()].map((quota) => quota.ask(this.#nowMs, { givesAllBack: true }));
    if (asks.length > 0) await this.#options.coordinator.exchange(asks);
    await this.#options.coordinator.leave();
  }

  /** Sends nothing more. Without `leave` the coordinator counts the quotas until the node expires. */
  close(): Promise<void> {
    this.#stop();
    return this.#options.coordinator.close();
  }

  get #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }

  /** Whether this node was silent for so long that others may have been granted what it held. */
  get #isExpired(): boolean {
    return this.#nowMs - this.#reportedMs > this.#options.nodeExpiryMs;
  }

  #stop(): void {
    this.#isClosed = true;
    this.#stopTimer?.();
  }

  /** Sets the timer of the next report, in place of the former timer. */
  #reportAfter(ms: number): void {
    if (this.#isClosed) return;
    this.#stopTimer?.();
    this.#stopTimer = this.#options.timers.after(ms, () => {
      this.#stopTimer = undefined;
      void this.#onTimer();
    });
  }

  /**
   * Reports, and sets the timer of the next report. If a report is under way, waits for its end instead: what
   * became urgent meanwhile is in the next report, REPORT_MS later.
   */
  async #onTimer(): Promise<void> {
    this.#reporting ??= this.#report();
    await this.#reporting;
    this.#reporting = undefined;
    if (this.#stopTimer === undefined && (this.#quotas.size > 0 || !this.#hasJoined))
      this.#reportAfter(REPORT_MS);
  }

  /**
   * Joins unless the node has joined, then exchanges an ask of each quota, and another of those that need a
   * second ask. A loss of the coordinator is no error: the next report tries again. Rejects only by a bug,
   * which ends the process.
   */
  async #report(): Promise<void> {
    const { coordinator, mayReport } = this.#options;
    if (!mayReport()) return;
    try {
      if (!this.#hasJoined) await coordinator.join();
      this.#hasJoined = true;
      const again = await this.#exchange([...this.#quotas.values()]);
      if (again.length > 0 && mayReport()) await this.#exchange(again);
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
      if (error.reason !== 'unknown_node') return;
      // The coordinator has ended this life, and may have granted to others what it held.
      this.#hasJoined = false;
      for (const quota of this.#quotas.values()) quota.drop();
    }
  }

  /**
   * Sends an ask for each quota, and hands each quota its reply: replies come in the order of the asks.
   * Removes empty quotas that were not served lately. Returns the quotas that need another ask at once.
   */
  async #exchange(quotas: readonly FallbackQuota[]): Promise<FallbackQuota[]> {
    if (quotas.length === 0) return [];
    const sentMs = this.#nowMs;
    const asks = quotas.map((quota) => quota.ask(sentMs, { givesAllBack: this.#isUnserved(quota) }));
    const { replies } = await this.#options.coordinator.exchange(asks);
    this.#reportedMs = sentMs;
    return quotas.filter((quota, index) => {
      const asksAgain = quota.applyReply(replies[index]!, sentMs) || quota.hasPermitsToReturn;
      if (!asksAgain && quota.isEmpty && this.#isUnserved(quota)) this.#quotas.delete(quota.scope);
      return asksAgain;
    });
  }

  /** Whether no call of the scope was served lately, so that its quota is given back. */
  #isUnserved({ servedMs }: FallbackQuota): boolean {
    return this.#nowMs - servedMs >= SERVED_MS_MAX;
  }
}
