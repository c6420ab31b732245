/**
 * Holds what the coordinator has denied of one resource of a scope, and says why a waiting request so lacks
 * the resource. minute-lease.ts and stock-leases.ts have one Denials for each resource, and know which limit
 * and which amount was denied; lease-waits.ts goes by the lacks. Main thread. All times are monotonic.
 *
 * Must hold: a request is never rejected by the reply to an ask that was sent before the request came, but
 * for the short time after another request was rejected (also test/unit/sharing/lease-manager.test.ts).
 */

/**
 * Why a waiting request lacks a quota. If it lacks several, the reason that comes last in this list decides.
 * So no request is rejected before the coordinator was asked for all that it lacks ('unasked'), and a request
 * that lacks a 'used_up' quota does not wait for one that others hold.
 */
const LACKS = [
  /** The coordinator has too little left, but other nodes hold some, which they may give back. */
  'held_by_others',
  /** The coordinator has too little left, and other nodes hold none, or just gave none back. */
  'used_up',
  /** The coordinator has not been asked since the request came. */
  'unasked',
] as const;
export type Lack = (typeof LACKS)[number];

/** The lack that decides, see LACKS; undefined if nothing is lacking. */
export function decisiveLack(lacks: readonly { readonly lack: Lack }[]): Lack | undefined {
  return LACKS[Math.max(...lacks.map(({ lack }) => LACKS.indexOf(lack)))];
}

/** The coordinator's reply about a resource that was wanted and not granted. */
interface Denial {
  /** When the ask was sent. The denial says nothing to a request that came later. */
  readonly sentMs: number;
  /** Whether other nodes hold some that they may give back. */
  readonly heldByOthers: boolean;
}

export class Denials {
  #last: Denial | undefined;
  #rejectsUntilMs = 0;

  /** Until then requests are rejected without an ask, also if some is granted meanwhile; 0 at first. */
  get rejectsUntilMs(): number {
    return this.#rejectsUntilMs;
  }

  /** Records the reply to an ask that wanted some; undefined if some was granted. */
  record(denial: Denial | undefined): void {
    this.#last = denial;
  }

  /**
   * Has new requests rejected for `forMs` without an ask: the coordinator has too little, and no other node
   * gave any back. Returns false if such a time runs already: it is not prolonged, or a busy client would
   * keep this process from asking.
   */
  reject(nowMs: number, forMs: number): boolean {
    if (nowMs < this.#rejectsUntilMs) return false;
    this.#rejectsUntilMs = nowMs + forMs;
    return true;
  }

  /** Why a request that came at `sinceMs` lacks the resource, if what was denied is what it needs. */
  lackOf(sinceMs: number, nowMs: number): Lack {
    if (nowMs < this.#rejectsUntilMs) return 'used_up';
    if (this.#last === undefined || this.#last.sentMs < sinceMs) return 'unasked';
    return this.#last.heldByOthers ? 'held_by_others' : 'used_up';
  }
}
