/**
 * The requests of this process that wait for leases: decides when each wait ends, and how (LeaseEnd in
 * channel/lease-channel.ts). lease-manager.ts adds the waits, and calls `onReplies`, `onLoss` and `onTimer`.
 * Main thread. All times are monotonic. To _refuse_ a request is to end its wait with the quotas that were
 * denied; its own thread then rejects it.
 *
 * Must hold: each wait ends, at its deadline or LATE_MS_MAX later; otherwise a client waits for ever. A
 * request is refused only if the coordinator has replied about all that it lacks, and only by quotas that the
 * coordinator has denied: never by one of which something is left, in this process or elsewhere. A wait that
 * ends with 'try' takes nothing: another request may be faster, and the waiting one then waits again. Further
 * tests: test/unit/sharing/lease-manager.test.ts, test/unit/request/refusals.test.ts,
 * test/e2e/late-leases.test.ts.
 */
import type { LeaseEnd, LeaseNeed } from '../channel/lease-channel.js';
import type { Clock } from '../core/clock.js';
import type { CoordinatorContact } from './coordinator-contact.js';
import type { PeriodOf } from './coordinator.js';
import { decisiveLack } from './denials.js';
import { WAIT_FOR_OTHERS_MS } from './lease-terms.js';
import type { LeasedScope, QuotaLack, Wait } from './leased-scope.js';

/** How long a call waits for quotas of an upstream: less than ASK_MS of upstream/upstream-quotas.ts. */
const UPSTREAM_WAIT_MS = 800;
/** How much longer a request waits if the coordinator has not replied yet about what it lacks. */
const LATE_MS_MAX = 1_000;
/** How many requests may wait in this process, in about 1 MB. Further ones end at once, with 'lost'. */
const WAITS_MAX = 20_000;
/** How many requests of one scope may wait for what others give back. More would hardly get any. */
const OTHERS_WAITS_MAX = 64;

interface LeaseWaitsOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly contact: CoordinatorContact;
  /** The current periods, by the coordinator's calendar. */
  readonly periodOf: PeriodOf;
  /** Puts the scope into the next exchange, which leaves in a later event-loop turn. */
  readonly ask: (scope: LeasedScope) => void;
}

export class LeaseWaits {
  readonly #options: LeaseWaitsOptions;
  readonly #waits = new Set<Wait>();
  /** The number of the round, one for each event. In a round each leased amount is allotted to one wait. */
  #round = 0;

  constructor(options: LeaseWaitsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#waits.size;
  }

  /** Resolves when what the request needs of the scopes is leased, or cannot be. Never rejects. */
  add(need: LeaseNeed, scopes: readonly LeasedScope[]): Promise<LeaseEnd> {
    if (this.#waits.size >= WAITS_MAX) return Promise.resolve('lost');
    return new Promise((end) => {
      const sinceMs = this.#options.clock.monotonicMs();
      const waitMs = need.kind === 'upstream' ? UPSTREAM_WAIT_MS : WAIT_FOR_OTHERS_MS;
      const wait: Wait = { need, sinceMs, scopes, deadlineMs: sinceMs + waitMs, isOverdue: false, end };
      this.#waits.add(wait);
      for (const scope of scopes) scope.waits.add(wait);
      this.#round += 1;
      this.#decide(wait, new Map());
    });
  }

  /** Called when the coordinator's replies about these scopes have been applied. */
  onReplies(scopes: readonly LeasedScope[]): void {
    this.#round += 1;
    const waitCounts = new Map<LeasedScope, number>();
    for (const scope of scopes) for (const wait of scope.waits) this.#decide(wait, waitCounts);
  }

  /** Called when an exchange has failed. */
  onLoss(): void {
    this.#round += 1;
    for (const wait of this.#waits) this.#decide(wait, new Map());
  }

  /** Ends the waits whose deadline is over, and asks again for the other waits. Called every 60 to 250 ms. */
  onTimer(): void {
    const { clock, ask } = this.#options;
    const nowMs = clock.monotonicMs();
    this.#round += 1;
    for (const wait of this.#waits) {
      if (nowMs < wait.deadlineMs) for (const scope of wait.scopes) ask(scope);
      else this.#decideOverdue(wait, nowMs);
    }
  }

  /** Ends the wait, or puts its deadline off, once, if no reply came or an exchange failed. */
  #decideOverdue(wait: Wait, nowMs: number): void {
    const { contact } = this.#options;
    // A lost coordinator may have more by now than its last reply said, so the request is not refused.
    if (!contact.isLost) this.#decide(wait, new Map());
    else if (wait.isOverdue || contact.isLostForLong(nowMs)) this.#endLost(wait, nowMs);
    if (!this.#waits.has(wait)) return;
    if (wait.isOverdue) this.#end(wait, 'late');
    wait.isOverdue = true;
    wait.deadlineMs = nowMs + LATE_MS_MAX;
  }

  close(): void {
    for (const wait of this.#waits) this.#end(wait, 'lost');
  }

  /**
   * Ends the wait, or asks for what its request lacks, or lets the request wait for what others may give
   * back. `waitCounts` counts the waits of the last kind by their first scope: OTHERS_WAITS_MAX bounds them.
   * `onReplies` passes one map for all its waits. The other callers pass an empty one, which bounds nothing.
   */
  #decide(wait: Wait, waitCounts: Map<LeasedScope, number>): void {
    const { clock, contact, periodOf, ask } = this.#options;
    const nowMs = clock.monotonicMs();
    const lacks = wait.scopes.flatMap((scope) => scope.lacksOf(wait, this.#round, periodOf, nowMs));
    const lack = decisiveLack(lacks);
    if (lack === undefined) {
      for (const scope of wait.scopes) scope.allot(wait);
      this.#end(wait, 'try');
    } else if (lack === 'used_up') {
      this.#refuse(wait, lacks, nowMs);
    } else if (
      contact.isLostForLong(nowMs) ||
      // The coordinator could not tell how much is left, so the caller is not told that a quota is used up.
      (lack === 'held_by_others' && wait.scopes.some(({ isUnknown }) => isUnknown))
    ) {
      this.#endLost(wait, nowMs);
    } else if (lack === 'unasked') {
      for (const scope of wait.scopes) ask(scope);
    } else if (!contact.isLost) {
      // While the coordinator is lost, only `#decideOverdue` ends the wait: others may give something back.
      // The `!` is safe: LeaseManager.wait adds no wait without a scope.
      const firstScope = wait.scopes[0]!;
      const waitCount = waitCounts.get(firstScope) ?? 0;
      waitCounts.set(firstScope, waitCount + 1);
      if (waitCount >= OTHERS_WAITS_MAX || nowMs >= wait.deadlineMs) this.#refuse(wait, lacks, nowMs);
    }
  }

  /** Each of `lacks` was denied. Quotas that are used up refuse; if there are none, those held by others. */
  #refuse(wait: Wait, lacks: readonly QuotaLack[], nowMs: number): void {
    const decisive = decisiveLack(lacks);
    const refused = lacks.filter(({ lack }) => lack === decisive);
    for (const { scope, quota } of refused) {
      scope.reject(quota, nowMs);
      // The next exchange reports what `reject` gave back: others may be waiting for it.
      this.#options.ask(scope);
    }
    this.#end(wait, {
      refused: refused.map(({ scope: { address }, quota }) => ({
        kind: address.kind,
        index: address.index,
        quota,
      })),
    });
  }

  #endLost(wait: Wait, nowMs: number): void {
    const untilMs = this.#options.contact.state.lost?.untilMs;
    this.#end(wait, untilMs === undefined ? 'lost' : { lostForMs: Math.max(0, untilMs - nowMs) });
  }

  #end(wait: Wait, end: LeaseEnd): void {
    this.#waits.delete(wait);
    for (const scope of wait.scopes) scope.waits.delete(wait);
    wait.end(end);
  }
}
