/**
 * The requests of this process that wait for leases, and when each has waited long enough. `LeaseManager`
 * adds them and says when the coordinator has replied. Main thread.
 *
 * Must hold: each wait ends, by its deadline or LATE_MS_MAX later; otherwise a client waits for ever. It ends
 * with 'refused' only if the coordinator has denied what it needs, and granted the rest: a thread that was
 * stopped for so long knows of no quota that is used up, and the listener names the first quota that it
 * lacks. (If another request takes what one was promised, that one asks again.) Tests:
 * test/unit/sharing/lease-manager.test.ts, test/e2e/late-leases.test.ts.
 */
import type { LeaseEnd, LeaseNeed } from '../channel/lease-channel.js';
import type { Clock } from '../core/clock.js';
import type { CoordinatorContact } from './coordinator-contact.js';
import type { PeriodOf } from './coordinator.js';
import { type Lack, type LeasedScope, type Wait, worse } from './leased-scope.js';

/** How long a request waits for what others may give back: they do after 750 ms, see IDLE_MS_SCARCE. */
const WAIT_MS_MAX = 1_500;
/** The same of a call that needs room at an upstream: see ASK_MS of upstream/upstream-quotas.ts. */
const UPSTREAM_WAIT_MS = 800;
/** How long a request waits after that for the coordinator's first reply about what it needs. */
const LATE_MS_MAX = 1_000;
/** How many requests may wait in this process, in about 1 MB; others end as if the coordinator were lost. */
const WAITS_MAX = 20_000;
/** How many may wait for what others give back of one scope: beyond its limit more are no use. */
const DENIED_WAITS_MAX = 64;

export interface LeaseWaitsOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly contact: CoordinatorContact;
  /** By the coordinator's calendar. */
  readonly periodOf: PeriodOf;
  /** Puts the scope into the next exchange, which leaves in a later event-loop turn. */
  readonly ask: (scope: LeasedScope) => void;
}

export class LeaseWaits {
  readonly #options: LeaseWaitsOptions;
  readonly #waits = new Set<Wait>();
  /** Grows with each reply. Within a round, each amount that is here is promised to one request only. */
  #round = 0;

  constructor(options: LeaseWaitsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#waits.size;
  }

  /** Resolves when what the request needs of the scopes is here, or cannot be had. Never rejects. */
  add(need: LeaseNeed, scopes: readonly LeasedScope[]): Promise<LeaseEnd> {
    if (this.#waits.size >= WAITS_MAX) return Promise.resolve('lost');
    return new Promise((end) => {
      const sinceMs = this.#options.clock.monotonicMs();
      const waitMs = need.kind === 'upstream' ? UPSTREAM_WAIT_MS : WAIT_MS_MAX;
      const wait: Wait = { need, sinceMs, scopes, deadlineMs: sinceMs + waitMs, isOverdue: false, end };
      this.#waits.add(wait);
      for (const scope of scopes) scope.waits.add(wait);
      this.#round += 1;
      this.#reply(wait, new Map());
    });
  }

  /** Call it when the coordinator has replied for these scopes. */
  answered(scopes: readonly LeasedScope[]): void {
    this.#round += 1;
    const denied = new Map<LeasedScope, number>();
    for (const scope of scopes) for (const wait of scope.waits) this.#reply(wait, denied);
  }

  /** Call it when an exchange has failed. */
  lost(): void {
    this.#round += 1;
    for (const wait of this.#waits) this.#reply(wait, new Map());
  }

  /** Ends the waits whose deadline is over, and asks again for the others. Called every 60 to 250 ms. */
  onTime(): void {
    const { clock, contact, ask } = this.#options;
    const nowMs = clock.monotonicMs();
    this.#round += 1;
    for (const wait of this.#waits) {
      if (nowMs < wait.deadlineMs) for (const scope of wait.scopes) ask(scope);
      // Nobody knows whether the coordinator would have more by now, so this is no rejection.
      else if (contact.isLost) this.#lose(wait, nowMs);
      else this.#endOverdue(wait, nowMs);
    }
  }

  /** Ends the wait by what is known, or lets it wait for the coordinator's reply for LATE_MS_MAX more. */
  #endOverdue(wait: Wait, nowMs: number): void {
    this.#reply(wait, new Map());
    if (!this.#waits.has(wait)) return;
    if (wait.isOverdue) this.#end(wait, 'late');
    wait.isOverdue = true;
    wait.deadlineMs = nowMs + LATE_MS_MAX;
  }

  close(): void {
    for (const wait of this.#waits) this.#end(wait, 'lost');
  }

  /**
   * Ends the wait if it is decided; otherwise asks for what it lacks. `denied` counts, by the first scope of
   * each wait, those of one call that go on waiting for what others may give back.
   */
  #reply(wait: Wait, denied: Map<LeasedScope, number>): void {
    const { clock, contact, periodOf, ask } = this.#options;
    const nowMs = clock.monotonicMs();
    let lack: Lack = 'nothing';
    for (const scope of wait.scopes) {
      lack = worse(lack, scope.promise(wait, this.#round, periodOf, nowMs));
    }
    if (lack === 'nothing') {
      this.#end(wait, 'try');
    } else if (lack === 'refused') {
      this.#reject(wait, nowMs);
    } else if (
      contact.isLostForLong(nowMs) ||
      (lack === 'denied' && wait.scopes.some(({ isUnknown }) => isUnknown))
    ) {
      this.#lose(wait, nowMs);
    } else if (lack === 'unasked') {
      for (const scope of wait.scopes) ask(scope);
    } else {
      const first = wait.scopes[0]!;
      const before = denied.get(first) ?? 0;
      denied.set(first, before + 1);
      if (before >= DENIED_WAITS_MAX || nowMs >= wait.deadlineMs) this.#reject(wait, nowMs);
    }
  }

  #reject(wait: Wait, nowMs: number): void {
    for (const scope of wait.scopes) {
      scope.reject(wait.need, nowMs);
      // The coordinator hears at once of what was given back: others may be waiting for it.
      this.#options.ask(scope);
    }
    this.#end(wait, 'refused');
  }

  #lose(wait: Wait, nowMs: number): void {
    const untilMs = this.#options.contact.state.lost?.untilMs;
    this.#end(wait, untilMs === undefined ? 'lost' : { lostForMs: Math.max(0, untilMs - nowMs) });
  }

  #end(wait: Wait, end: LeaseEnd): void {
    this.#waits.delete(wait);
    for (const scope of wait.scopes) scope.waits.delete(wait);
    wait.end(end);
  }
}
