/**
 * Sets a fallback quota aside for each scope that this process served lately, so that the process can go on
 * when the coordinator cannot be reached. open-hosts.ts makes it. equal-share.ts, which is the coordinator of
 * calls, calls all its methods: `start` once calls have joined, `recordReply` after each of their exchanges,
 * `holdsAny` and `grant` while the coordinator is lost, `leave` and `close` at the end. Main thread.
 *
 * For calls a process has two nodes at the coordinator: _the calls' node_, which has their leases, and _this
 * node_, which has the fallback quotas. If the coordinator denies calls a resource, this node gives back what
 * it holds of that. After a loss this node is silent until the calls' node has reported what the fallback
 * quotas granted it (`mayReport`).
 *
 * Must hold: the coordinator has on record, at one of these two nodes, all that the process holds; for a
 * moment it may be at both. What is on record at neither would be granted twice. (The unit test makes random
 * cuts and random use.)
 */
import type { Clock } from '../core/clock.js';
import { CoordinatorLost, type Coordinator, type LeaseReply, type LeaseAsk } from './coordinator.js';
import type { LeaseTimers } from './lease-timers.js';
import { FallbackQuota, type FallbackGrant } from './fallback-quota.js';

/** How often the quotas are reported: the coordinator's record of them is no older. */
const REPORT_MS = 1_000;
/** A scope that was not served for so long gives its quota back. */
const SERVED_MS_MAX = 120_000;
/**
 * So many scopes have a quota; others get one only after one of these was given back. A scope costs an ask a
 * second, which takes the server some 50 µs: twenty processes with so many scopes take half of the server's
 * time. One exchange carries the asks of all (EXCHANGE_ASKS_MAX of coordinator.ts).
 */
const SCOPES_MAX = 500;

interface FallbackOptions {
  /** The connection of this node. No other node uses it, and `close` closes it. */
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /**
   * How many processes of all hosts serve calls, by the settings at the start, whether they run or not. Each
   * sets aside at most such a part of what remains, and half at most if there is one process.
   */
  readonly shares: number;
  /**
   * After so long a silence the coordinator may end this node's life, which began as it joined: what the node
   * held is then granted to others, and the node must join again.
   */
  readonly nodeExpiryMs: number;
  /** Whether this node may report: not while the coordinator is lost, or the calls' node has to report. */
  readonly mayReport: () => boolean;
}

export class FallbackCoordinator {
  readonly #options: FallbackOptions;
  readonly #quotas = new Map<string, FallbackQuota>(); // by the name of the scope; at most SCOPES_MAX
  #stopTimer: (() => void) | undefined; // stops the timer of the next report; undefined if none runs
  #reporting: Promise<void> | undefined; // the report that is under way
  #hasJoined = false;
  #reportedMs = -Infinity; // when the last exchange was sent to which the coordinator replied
  #hasStopped = false; // whether `leave` or `close` was called: no report begins any more

  constructor(options: FallbackOptions) {
    this.#options = options;
  }

  /** Begins to join, and tries again every second while that fails. */
  start(): void {
    this.#reportAfter(0);
  }

  /**
   * Records an ask of the calls' node and the reply of the coordinator itself. Call it for no reply that was
   * made of `grant`: such a reply does not show what the coordinator can grant.
   */
  recordReply(ask: LeaseAsk, reply: LeaseReply): void {
    const nowMs = this.#nowMs;
    let quota = this.#quotas.get(ask.scope);
    if (quota === undefined) {
      if (this.#quotas.size >= SCOPES_MAX) return;
      quota = new FallbackQuota(ask.scope, this.#options.shares, nowMs);
      this.#quotas.set(ask.scope, quota);
    }
    // True: calls were denied what this quota holds. The next report gives that back, so it comes at once.
    if (quota.recordReply(ask, reply, nowMs)) this.#reportAfter(0);
    if (this.#stopTimer === undefined) this.#reportAfter(REPORT_MS);
  }

  /** Whether `grant` may have something for any scope. Looks at all quotas. */
  get holdsAny(): boolean {
    const nowMs = this.#nowMs;
    return !this.#isExpired && [...this.#quotas.values()].some((quota) => quota.holdsAnyAt(nowMs));
  }

  /**
   * Grants to the calls' node what it asks for, as far as it is set aside; the amounts may be 0. The calls'
   * node must report the grant to the coordinator. Undefined if the scope has no quota, or after the expiry.
   */
  grant(ask: LeaseAsk): FallbackGrant | undefined {
    if (this.#isExpired) return undefined;
    return this.#quotas.get(ask.scope)?.grant(ask, this.#nowMs);
  }

  /**
   * Waits for the report under way, which may join or be granted some more, then gives all back in one
   * exchange and ends the node. The caller first reports to the coordinator what `grant` returned, because
   * `leave` does not ask `mayReport`. Rejects with CoordinatorLost. Call `close` in any case.
   */
  async leave(): Promise<void> {
    this.#stop();
    await this.#reporting;
    if (!this.#hasJoined) return;
    const asks = [...this.#quotas.values()].map((quota) => quota.ask(this.#nowMs, { givesAllBack: true }));
    if (asks.length > 0) await this.#options.coordinator.exchange(asks);
    await this.#options.coordinator.leave();
  }

  /**
   * Closes the connection of this node, so that a report under way sends nothing more. Without `leave` the
   * coordinator counts the quotas until the node expires.
   */
  close(): Promise<void> {
    this.#stop();
    return this.#options.coordinator.close();
  }

  get #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }

  /**
   * Whether this node was silent for so long that others may have been granted what it held. Counted from
   * when the exchange was sent: the coordinator counts from when it came, which is later.
   */
  get #isExpired(): boolean {
    return this.#nowMs - this.#reportedMs > this.#options.nodeExpiryMs;
  }

  #stop(): void {
    this.#hasStopped = true;
    this.#stopTimer?.();
  }

  /** Sets the timer of the next report, in place of the former timer. */
  #reportAfter(ms: number): void {
    if (this.#hasStopped) return;
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
   * Joins unless the node has joined, then exchanges an ask of each quota, and a second ask of some: of a
   * quota after its first reply, by which it knows how much it may ask for, and of one whose permits were
   * replaced by newer ones, which it returns. A loss of the coordinator is no error: the next report tries
   * again. Rejects only by a bug, which ends the process.
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
