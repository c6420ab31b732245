/**
 * Sees to it that a node which is cut off can go on: of what is left of each account and key that it served lately, one part in as
 * many as share is set aside, so that nobody else is lent it, and is kept until the authority is lost. Main thread.
 *
 * It is a node of its own at the authority, beside that of the calls, so that what is set aside is no part of their leases: they
 * are served from those first, and where the authority has nothing left for them, what is set aside goes back to it. When the
 * authority is lost, calls are lent from here (`lend`). From then on this node says nothing until the node of the calls has told
 * the authority what it was lent: so it is counted all the time, at one of the two or for a moment at both.
 *
 * Bounded: SUBJECTS_MAX of them, who comes when there are as many has nothing set aside; each costs an ask a second.
 */
import type { Clock } from '../core/clock.js';
import { dayNumberOf } from '../ledger/day.js';
import { AuthorityLost, type Authority, type LeaseAnswer, type LeaseAsk } from './coordinator.js';
import type { LeaseTimers } from './lease-terms.js';
import { Reserve, type Lent } from './fallback-quota.js';

/** A reserve that is not told of for so long is out of date by as much. */
const RENEW_MS = 1_000;
/** Who was not served for so long has what was set aside for it given back. */
const SERVED_MS_MAX = 120_000;
/** At the server some 50 µs each a second, so that twenty hosts take half of its time at the most. */
const SUBJECTS_MAX = 500;

export interface StandByOptions {
  /** The node's own. */
  readonly authority: Authority;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** Nodes of all hosts. */
  readonly shares: number;
  readonly nodeExpiryMs: number;
  /** False while the authority has not been told of all that was lent from here. */
  readonly mayTell: () => boolean;
}

export class StandBy {
  readonly #options: StandByOptions;
  readonly #reserves = new Map<string, Reserve>();
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

  /** Calls were answered by the authority: `answer` is to `ask`. */
  served(ask: LeaseAsk, answer: LeaseAnswer): void {
    const nowMs = this.#nowMs;
    const { subject } = ask;
    let reserve = this.#reserves.get(subject);
    if (reserve === undefined) {
      if (this.#reserves.size >= SUBJECTS_MAX) return;
      reserve = new Reserve(ask, this.#options.shares, nowMs);
      this.#reserves.set(subject, reserve);
    }
    if (reserve.serve(ask, answer, nowMs)) this.#keepTime(0);
    if (this.#stopTimer === undefined) this.#keepTime(RENEW_MS);
  }

  /** Whether there is anything to lend. */
  get holdsAny(): boolean {
    const nowMs = this.#nowMs;
    if (nowMs - this.#toldMs > this.#options.nodeExpiryMs) return false;
    for (const reserve of this.#reserves.values()) if (reserve.holds(nowMs)) return true;
    return false;
  }

  /** Lends to the node of the calls, which the authority has to be told of; nothing where a life that is silent for so long is over. */
  lend(ask: LeaseAsk): Lent | undefined {
    const { clock, nodeExpiryMs } = this.#options;
    const nowMs = this.#nowMs;
    if (nowMs - this.#toldMs > nodeExpiryMs) return undefined;
    return this.#reserves.get(ask.subject)?.lend(ask, dayNumberOf(clock.wallMs()), nowMs);
  }

  /** Gives all back. Rejects with AuthorityLost. */
  async leave(): Promise<void> {
    this.#stop();
    await this.#telling;
    if (!this.#joined) return;
    const asks = [...this.#reserves.values()].map((reserve) => reserve.ask(this.#nowMs, true));
    if (asks.length > 0) await this.#options.authority.exchange(asks);
    await this.#options.authority.leave();
  }

  close(): Promise<void> {
    this.#stop();
    return this.#options.authority.close();
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

  /** Tells and asks of all; of some twice, where the first answer calls for it. Never rejects with AuthorityLost. */
  async #tell(): Promise<void> {
    if (!this.#options.mayTell()) return;
    try {
      if (!this.#joined) await this.#options.authority.join();
      this.#joined = true;
      const again = await this.#exchange([...this.#reserves]);
      if (again.length > 0 && this.#options.mayTell()) await this.#exchange(again);
    } catch (error) {
      if (!(error instanceof AuthorityLost)) throw error;
      if (error.reason !== 'unknown_node') return;
      // What a life held that is not known any more, others may have been lent.
      this.#joined = false;
      for (const reserve of this.#reserves.values()) reserve.drop();
    }
  }

  async #exchange(reserves: readonly (readonly [string, Reserve])[]): Promise<[string, Reserve][]> {
    if (reserves.length === 0) return [];
    const sentMs = this.#nowMs;
    const asks = reserves.map(([, reserve]) => reserve.ask(sentMs, this.#isForgotten(reserve)));
    const { answers } = await this.#options.authority.exchange(asks);
    this.#toldMs = sentMs;
    const again: [string, Reserve][] = [];
    for (const [at, [subject, reserve]] of reserves.entries()) {
      const asksMore = reserve.take(answers[at]!, sentMs);
      if (asksMore || reserve.returns) again.push([subject, reserve]);
      else if (reserve.isEmpty && this.#isForgotten(reserve)) this.#reserves.delete(subject);
    }
    return again;
  }

  #isForgotten({ servedMs }: Reserve): boolean {
    return this.#nowMs - servedMs >= SERVED_MS_MAX;
  }
}
