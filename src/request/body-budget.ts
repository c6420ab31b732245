/**
 * The memory budget of request bodies in a process: for all calls together, and for each account. On
 * listener threads intake.ts takes and chat-exchange.ts gives back. On the main thread gateway/gateway.ts
 * makes the buffer, and gateway/stats.ts reads the sum.
 *
 * One SharedArrayBuffer of 32-bit words has a stripe for each listener:
 *
 *     word 0      KiB of memory that the bodies of the listener's calls take
 *     word 1 + a  KiB that those of account a take
 *
 * Untouched pages cost no memory.
 *
 * Must hold: only its own listener writes to a stripe, and a new listener clears the stripe of a dead one. A
 * listener adds to its stripe before it sums up: if two listeners take the last bytes at the same time, both
 * may be rejected, but never do both get them. The total is raised first and lowered last: while it is 0, no
 * account has anything, wherever a listener dies.
 */
import { BODY_MEMORY_FACTOR } from '../core/limits.js';
import { ceilDiv, type AccountIndex } from '../core/units.js';

const BYTES_PER_KIB = 1_024;
const WORD_BYTES = Int32Array.BYTES_PER_ELEMENT;
const TOTAL = 0;
const FIRST_ACCOUNT = 1;

/** The most that one account may take, so that it cannot crowd out the large calls of all others. */
const ACCOUNT_SHARE = 1 / 2;
/** The most that large bodies may take together. The rest is for bodies that a listener parses. */
const LARGE_SHARE = 3 / 4;

export interface BodyBudgetBuffer {
  readonly shared: SharedArrayBuffer;
  readonly accountsMax: number;
}

/** Called once, by the main thread. */
export function createBodyBudget(listeners: number, accountsMax: number): BodyBudgetBuffer {
  return {
    shared: new SharedArrayBuffer(listeners * (FIRST_ACCOUNT + accountsMax) * WORD_BYTES),
    accountsMax,
  };
}

/** A reload may change the bounds while bodies are held. */
export interface BodyBounds {
  /** Of memory, so of BODY_MEMORY_FACTOR times the lengths of bodies. */
  readonly bytesMax: number;
  /** The longest body that is accepted. If no other body is held, such a body is taken above any share. */
  readonly bodyBytesMax: number;
  /** Bodies longer than this are large: see LARGE_SHARE. */
  readonly parseInlineBytesMax: number;
}

export class BodyBudget {
  readonly #words: Int32Array;
  readonly #stripeWords: number;
  readonly #own: number;

  /** Clears the stripe, in case an earlier listener of that index has died. Listener thread. */
  constructor(buffer: BodyBudgetBuffer, listenerIndex: number) {
    this.#words = new Int32Array(buffer.shared);
    this.#stripeWords = FIRST_ACCOUNT + buffer.accountsMax;
    this.#own = listenerIndex * this.#stripeWords;
    if (Atomics.load(this.#words, this.#own + TOTAL) !== 0) {
      this.#words.fill(0, this.#own, this.#own + this.#stripeWords);
    }
  }

  /**
   * Raises what one body holds from `heldBytes`, 0 at first, to `bytes`; both are lengths of the body.
   * `account_full`: the account's share is used up; `full`: that of all. Then nothing has changed.
   */
  take(
    account: AccountIndex,
    heldBytes: number,
    bytes: number,
    bounds: BodyBounds,
  ): 'taken' | 'account_full' | 'full' {
    const words = this.#words;
    const kib = kibOf(bytes) - kibOf(heldBytes);
    Atomics.add(words, this.#own + TOTAL, kib);
    Atomics.add(words, this.#own + FIRST_ACCOUNT + account, kib);
    const oneKib = kibOf(bounds.bodyBytesMax);
    const budgetKib = bounds.bytesMax / BYTES_PER_KIB;
    const shareKib = bytes > bounds.parseInlineBytesMax ? budgetKib * LARGE_SHARE : budgetKib;
    const isFull = this.#sum(TOTAL) > Math.max(oneKib, shareKib);
    if (
      !isFull &&
      this.#sum(FIRST_ACCOUNT + account) <= Math.max(oneKib, Math.min(shareKib, budgetKib * ACCOUNT_SHARE))
    )
      return 'taken';
    Atomics.sub(words, this.#own + FIRST_ACCOUNT + account, kib);
    Atomics.sub(words, this.#own + TOTAL, kib);
    return isFull ? 'full' : 'account_full';
  }

  /** Call it once for a body, with the length that was last taken. */
  giveBack(account: AccountIndex, heldBytes: number): void {
    const kib = kibOf(heldBytes);
    Atomics.sub(this.#words, this.#own + FIRST_ACCOUNT + account, kib);
    Atomics.sub(this.#words, this.#own + TOTAL, kib);
  }

  #sum(word: number): number {
    const words = this.#words;
    let kib = 0;
    for (let at = word; at < words.length; at += this.#stripeWords) kib += Atomics.load(words, at);
    return kib;
  }
}

/** Bytes of memory that the bodies of all listeners take. Main thread. */
export function bodyBytesInWork({ shared, accountsMax }: BodyBudgetBuffer): number {
  const words = new Int32Array(shared);
  let kib = 0;
  for (let at = TOTAL; at < words.length; at += FIRST_ACCOUNT + accountsMax) kib += Atomics.load(words, at);
  return kib * BYTES_PER_KIB;
}

/** KiB of memory for a body of `bytes`: its pieces, and what is made of them for the upstream. */
function kibOf(bytes: number): number {
  return ceilDiv(bytes * BODY_MEMORY_FACTOR, BYTES_PER_KIB);
}
