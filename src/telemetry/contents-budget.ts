/**
 * The memory budget for contents of calls that are not written yet, in words that the listener and the main
 * thread share. The listener takes, and gives back what it drops (request/call-contents.ts). The main thread
 * gives back what it has appended (gateway/gateway-logs.ts).
 *
 * Must hold: what is taken is given back once, else a listener keeps no contents any more, or without bound
 * (of calls: test/unit/request/call-contents.test.ts).
 */

// The words of ContentsBudget.
const TAKEN = 0; // bytes in memory; both threads change it
const DROPPED = 1; // calls whose contents were not kept because the budget was used up, modulo 2^32
const WORDS = 2;
/** The budget of one listener: 250 calls of the longest texts by default, or 16,000 of 2 KB. */
const BUDGET_BYTES = 32 * 1024 * 1024;

/** gateway/gateway-start.ts creates a budget for each listener, which gets it in its `workerData`. */
export type ContentsBudgetBuffer = SharedArrayBuffer;

export function createContentsBudget(): ContentsBudgetBuffer {
  return new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
}

/** The memory budget for contents of one listener's calls. */
export class ContentsBudget {
  readonly #words: Int32Array;

  constructor(buffer: ContentsBudgetBuffer) {
    this.#words = new Int32Array(buffer);
  }

  /**
   * Takes `bytes` and returns true, or returns false if the budget has fewer left. Then nothing is taken, and
   * the listener counts the call by `countDropped`.
   */
  take(bytes: number): boolean {
    if (Atomics.add(this.#words, TAKEN, bytes) + bytes <= BUDGET_BYTES) return true;
    this.giveBack(bytes);
    return false;
  }

  /** To be called once for the bytes of each `take` that returned true. */
  giveBack(bytes: number): void {
    Atomics.sub(this.#words, TAKEN, bytes);
  }

  /**
   * gateway-logs.ts calls it when the listener has ended and its messages were read, before its successor
   * takes of the budget.
   */
  giveBackAll(): void {
    Atomics.store(this.#words, TAKEN, 0);
  }

  countDropped(): void {
    Atomics.add(this.#words, DROPPED, 1);
  }

  get dropped(): number {
    return Atomics.load(this.#words, DROPPED) >>> 0;
  }
}
