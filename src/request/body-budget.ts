/**
 * The memory budget of request bodies in a process: for all calls together, and for each account. On listener
 * threads intake.ts takes of it and chat-exchange.ts gives back. On the main thread gateway/gateway-start.ts
 * makes the buffer, and gateway/stats.ts reads what all bodies take.
 *
 * One SharedArrayBuffer of 32-bit words has a stripe for each listener:
 *
 *     word 0      KiB of memory that the bodies of the listener's calls take
 *     word 1 + a  KiB that the bodies of account a take
 *
 * A word for each account costs little, because pages of memory that were never written to take none.
 *
 * Must hold: only its own listener writes to a stripe, and a new listener clears the stripe of a dead one. A
 * listener adds to its stripe before it reads all stripes. So if two take the last bytes at the same time,
 * both may be rejected, but both never get them. No word overflows: 2^31 KiB are 2 TiB. The total is raised
 * first and lowered last: so if the constructor finds a total of 0, a dead listener has left nothing of any
 * account.
 */
import { BODY_MEMORY_FACTOR } from '../core/limits.js';
import { ceilDiv, type AccountIndex } from '../core/units.js';

const BYTES_PER_KIB = 1_024;
const WORD_BYTES = Int32Array.BYTES_PER_ELEMENT;
const TOTAL_WORD = 0;
const FIRST_ACCOUNT_WORD = 1;

/** The share of the budget that one account may take, so that it cannot crowd out the calls of all others. */
const ACCOUNT_SHARE = 1 / 2;
/** The share that large bodies may take together. The remainder is for bodies that a listener parses. */
const LARGE_SHARE = 3 / 4;

/** Goes to each listener in its `workerData`. */
export interface BodyBudgetBuffer {
  readonly shared: SharedArrayBuffer;
  readonly accountsMax: number;
}

/** Called once, by the main thread. */
export function createBodyBudget(listeners: number, accountsMax: number): BodyBudgetBuffer {
  return {
    shared: new SharedArrayBuffer(listeners * (FIRST_ACCOUNT_WORD + accountsMax) * WORD_BYTES),
    accountsMax,
  };
}

/** A reload may change the bounds while bodies are in work. */
export interface BodyBounds {
  /** The budget, in bytes of memory: BODY_MEMORY_FACTOR times the lengths of bodies. */
  readonly bytesMax: number;
  /** The longest body that is accepted. If there is no other body, such a body may exceed any share. */
  readonly bodyBytesMax: number;
  /** Bodies longer than this are large (LARGE_SHARE). */
  readonly parseInlineBytesMax: number;
}

export class BodyBudget {
  readonly #words: Int32Array;
  readonly #wordsPerStripe: number;
  readonly #firstOwnWord: number;

  /** Clears the stripe, in case an earlier listener of that index has died. Listener thread. */
  constructor(buffer: BodyBudgetBuffer, listenerIndex: number) {
    this.#words = new Int32Array(buffer.shared);
    this.#wordsPerStripe = FIRST_ACCOUNT_WORD + buffer.accountsMax;
    this.#firstOwnWord = listenerIndex * this.#wordsPerStripe;
    if (Atomics.load(this.#words, this.#firstOwnWord + TOTAL_WORD) !== 0) {
      this.#words.fill(0, this.#firstOwnWord, this.#firstOwnWord + this.#wordsPerStripe);
    }
  }

  /**
   * Raises what one body takes from `takenBytes`, 0 at first, to `bytes`; both are lengths of the body.
   * `account_full`: the account's share is used up; `full`: the share of all. In both cases nothing changes.
   */
  take(
    account: AccountIndex,
    takenBytes: number,
    bytes: number,
    bounds: BodyBounds,
  ): 'taken' | 'account_full' | 'full' {
    const words = this.#words;
    const kib = kibOf(bytes) - kibOf(takenBytes);
    Atomics.add(words, this.#firstOwnWord + TOTAL_WORD, kib);
    Atomics.add(words, this.#firstOwnWord + FIRST_ACCOUNT_WORD + account, kib);
    const longestBodyKib = kibOf(bounds.bodyBytesMax);
    const budgetKib = bounds.bytesMax / BYTES_PER_KIB;
    const shareKib = bytes > bounds.parseInlineBytesMax ? budgetKib * LARGE_SHARE : budgetKib;
    const isFull = kibOfStripes(words, this.#wordsPerStripe, TOTAL_WORD) > Math.max(longestBodyKib, shareKib);
    if (
      !isFull &&
      kibOfStripes(words, this.#wordsPerStripe, FIRST_ACCOUNT_WORD + account) <=
        Math.max(longestBodyKib, Math.min(shareKib, budgetKib * ACCOUNT_SHARE))
    )
      return 'taken';
    Atomics.sub(words, this.#firstOwnWord + FIRST_ACCOUNT_WORD + account, kib);
    Atomics.sub(words, this.#firstOwnWord + TOTAL_WORD, kib);
    return isFull ? 'full' : 'account_full';
  }

  /** Call it once for a body, with the length that was last taken. */
  giveBack(account: AccountIndex, takenBytes: number): void {
    const kib = kibOf(takenBytes);
    Atomics.sub(this.#words, this.#firstOwnWord + FIRST_ACCOUNT_WORD + account, kib);
    Atomics.sub(this.#words, this.#firstOwnWord + TOTAL_WORD, kib);
  }
}

/** Bytes of memory that the bodies of all listeners take. Main thread. */
export function bodyBytesInWork({ shared, accountsMax }: BodyBudgetBuffer): number {
  const kib = kibOfStripes(new Int32Array(shared), FIRST_ACCOUNT_WORD + accountsMax, TOTAL_WORD);
  return kib * BYTES_PER_KIB;
}

/** The KiB that all listeners have in that word of their stripes. */
function kibOfStripes(words: Int32Array, wordsPerStripe: number, word: number): number {
  let kib = 0;
  for (let position = word; position < words.length; position += wordsPerStripe)
    kib += Atomics.load(words, position);
  return kib;
}

/** KiB of memory for a body of `bytes`: its pieces, and what is made of them for the upstream. */
function kibOf(bytes: number): number {
  return ceilDiv(bytes * BODY_MEMORY_FACTOR, BYTES_PER_KIB);
}
