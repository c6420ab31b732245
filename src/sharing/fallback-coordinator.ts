/**
 * Sees to it that a node which is cut off can go on: of what is left of each account and key that it served lately, one part in as
 * many as share is set aside, so that nobody else is granted it, and is kept until the coordinator is lost. Main thread.
 *
 * It is a node of its own at the coordinator, beside that of the calls, so that what is set aside is no part of their leases: they
 * are served from those first, and where the coordinator has nothing left for them, what is set aside goes back to it. When the
 * coordinator is lost, calls are granted from here (`lend`). From then on this node says nothing until the node of the calls has told
 * the coordinator what it was granted: so it is counted all the time, at one of the two or for a moment at both.
 *
 * Bounded: SUBJECTS_MAX of them, who comes when there are as many has nothing set aside; each costs an ask a second.
 */
import type { Clock } from '../core/clock.js';
import { dayNumberOf } from '../ledger/day.js';
import { CoordinatorLost, type Coordinator, type LeaseReply, type LeaseAsk } from './coordinator.js';
import type { LeaseTimers } from './lease-terms.js';
import { FallbackQuota, type Granted } from './fallback-quota.js';

/** A reserve that is not told of for so long is out of date by as much. */
const RENEW_MS = 1_000;
/** Who was not served for so long has what was set aside for it given back. */
const SERVED_MS_MAX = 120_000;
/** At the server some 50 µs each a second, so that twenty hosts take half of its time at the most. */
const SCOPES_MAX = 500;

export interface StandByOptions {
  /** The node's own. */
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** Nodes of all hosts. */
  readonly shares: number;
  readonly nodeExpiryMs: number;
  /** False while the coordinator has not been told of all that was granted from here. */
  readonly mayTell: () => boolean;
}

export class StandBy {
  readonly #options: StandByOptions;
  readonly #reserves = new Map<string, FallbackQuota>();
  #stopTimer: (() => void) | undefined;
  #telling: Promise<void> | undefined;
  #joined = false;
  #toldMs = -Infinity;
  #closed = false;

  constructor(options: StandByOptions) {
    this.#options = options;
  }

  /** Begins to join; it is tried again for as long as it fails. */
  start(): void {
    this.#keepTime(0);
  }

  /** Calls were answered by the coordinator: `answer` is to `ask`. */
  served(ask: LeaseAsk, reply: LeaseReply): void {
    const nowMs = this.#nowMs;
    const { scope: subject } = ask;
    let reserve = this.#reserves.get(subject);
    if (reserve === undefined) {
      if (this.#reserves.size >= SCOPES_MAX) return;
      reserve = new FallbackQuota(ask, this.#options.shares, nowMs);
      this.#reserves.set(subject, reserve);
    }
    if (reserve.serve(ask, reply, nowMs)) this.#keepTime(0);
    if (this.#stopTimer === undefined) this.#keepTime(RENEW_MS);
  }

  /** Whether there is anything to lend. */
  get holdsAny(): boolean {
    const nowMs = this.#nowMs;
    if (nowMs - this.#toldMs > this.#options.nodeExpiryMs) return false;
    for (const reserve of this.#reserves.values()) if (reserve.holds(nowMs)) return true;
    return false;
  }

  /** Lends to the node of the calls, which the coordinator has to be told of; nothing where a life that is silent for so long is over. */
  lend(ask: LeaseAsk): Granted | undefined {
    const { clock, nodeExpiryMs } = this.#options;
    const nowMs = this.#nowMs;
    if (nowMs - this.#toldMs > nodeExpiryMs) return undefined;
    return this.#reserves.get(ask.scope)?.lend(ask, dayNumberOf(clock.wallMs()), nowMs);
  }

  /** Gives all back. Rejects with AuthorityLost. */
  async leave(): Promise<void> {
    this.#stop();
    await this.#telling;
    if (!this.#joined) return;
    const asks = [...this.#reserves.values()].map((reserve) => reserve.ask(this.#nowMs, true));
    if (asks.length > 0) await this.#options.coordinator.exchange(asks);
    await this.#options.coordinator.leave();
  }

  close(): Promise<void> {
    this.#stop();
    return this.#options.coordinator.close();
  }

  get #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }

  #stop(): void {
    this.#closed = true;
    this.#stopTimer?.();
  }

  #keepTime(ms: number): void {
    if (this.#closed) return;
    this.#stopTimer?.();
    this.#stopTimer = this.#options.timers.after(ms, () => {
      this.#stopTimer = undefined;
      void this.#onTime();
    });
  }

  async #onTime(): Promise<void> {
    this.#telling ??= this.#tell();
    await this.#telling;
    this.#telling = undefined;
    if (this.#stopTimer === undefined && (this.#reserves.size > 0 || !this.#joined)) this.#keepTime(RENEW_MS);
  }

  /** Tells and asks of all; of some twice, where the first response calls for it. Never rejects with AuthorityLost. */
  async #tell(): Promise<void> {
    if (!this.#options.mayTell()) return;
    try {
      if (!this.#joined) await this.#options.coordinator.join();
      this.#joined = true;
      const again = await this.#exchange([...this.#reserves]);
      if (again.length > 0 && this.#options.mayTell()) await this.#exchange(again);
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
      if (error.reason !== 'unknown_node') return;
      // What a life held that is not known any more, others may have been granted.
      this.#joined = false;
      for (const reserve of this.#reserves.values()) reserve.drop();
    }
  }

  async #exchange(
    reserves: readonly (readonly [string, FallbackQuota])[],
  ): Promise<[string, FallbackQuota][]> {
    if (reserves.length === 0) return [];
    const sentMs = this.#nowMs;
    const asks = reserves.map(([, reserve]) => reserve.ask(sentMs, this.#isForgotten(reserve)));
    const { answers: replies } = await this.#options.coordinator.exchange(asks);
    this.#toldMs = sentMs;
    const again: [string, FallbackQuota][] = [];
    for (const [at, [scope, reserve]] of reserves.entries()) {
      const asksMore = reserve.take(replies[at]!, sentMs);
      if (asksMore || reserve.returns) again.push([scope, reserve]);
      else if (reserve.isEmpty && this.#isForgotten(reserve)) this.#reserves.delete(scope);
    }
    return again;
  }

  #isForgotten({ servedMs }: FallbackQuota): boolean {
    return this.#nowMs - servedMs >= SERVED_MS_MAX;
  }
}
