/**
 * Bounds what the whole responses of a worker hold together. Upstream worker.
 *
 * A whole response is held from its first byte, because nothing of it goes down before it is known to be valid, until its client
 * has taken it, and a slow client may take hours. A response that finds no room is given up: the call is refused with 503
 * and not billed. To wait for room would be a queue behind the slowest reader.
 */
import { invariant } from '../core/errors.js';

export class ResponseBudgetBuffer {
  readonly #bytesMax: number;
  readonly #bytesUncounted: number;
  #heldBytes = 0;

  /** Answers up to `bytesUncounted` always find room: calls in flight bound them. */
  constructor(bytesMax: number, bytesUncounted: number) {
    this.#bytesMax = bytesMax;
    this.#bytesUncounted = bytesUncounted;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Changes what a response holds from `fromBytes` to `toBytes`; false, and no change, where there is no room for it. */
  change(fromBytes: number, toBytes: number): boolean {
    const held = this.#heldBytes - this.#counted(fromBytes) + this.#counted(toBytes);
    if (toBytes > fromBytes && this.#counted(toBytes) > 0 && held > this.#bytesMax) return false;
    invariant(held >= 0, 'what is given back was held');
    this.#heldBytes = held;
    return true;
  }

  #counted(bytes: number): number {
    return bytes > this.#bytesUncounted ? bytes : 0;
  }
}

/** What the response of one call holds. */
export class ResponseBudget {
  readonly #budget: ResponseBudgetBuffer;
  #bytes = 0;

  constructor(budget: ResponseBudgetBuffer) {
    this.#budget = budget;
  }

  /** Room for `bytes` more; false where there is none. */
  grow(bytes: number): boolean {
    if (!this.#budget.change(this.#bytes, this.#bytes + bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  /** The response is held no longer. Idempotent. */
  clear(): void {
    this.#budget.change(this.#bytes, 0);
    this.#bytes = 0;
  }
}
