/**
 * The memory that the bodies of all calls in work may take in a process, over all callers and of each
 * account. Any thread.
 *
 * One stripe a listener, all stripes in one SharedArrayBuffer of 32-bit words:
 *
 *     word 0      KiB of all bodies that the listener's calls hold
 *     word 1 + a  KiB of those of account a
 *
 * Only its own listener writes to a stripe, and takes before it looks at the sums: two that take the last
 * room at the same time may both be refused, but never both have it. A listener that died is forgotten with
 * its stripe. Untouched pages cost no memory.
 */
import { BODY_MEMORY_FACTOR } from '../core/limits.js';
import { ceilDiv, type AccountIndex } from '../core/units.js';

const BYTES_PER_KIB = 1_024;
const WORD_BYTES = Int32Array.BYTES_PER_ELEMENT;
const TOTAL = 0;
const FIRST_ACCOUNT = 1;

/**
 * What an account may take of the budget at most: with all of it one caller would have everybody's large
 * calls refused.
 */
const ACCOUNT_SHARE = 1 / 2;
/**
 * What large bodies may take of it together: the rest is for those that a listener parses, which are most
 * calls.
 */
const LARGE_SHARE = 3 / 4;

export interface BodyBudgetBuffer {
  readonly shared: SharedArrayBuffer;
  readonly accountsMax: number;
}

/** Main thread, once. */
export function createBodyBudget(listeners: number, accountsMax: number): BodyBudgetBuffer {
  return {
    shared: new SharedArrayBuffer(listeners * (FIRST_ACCOUNT + accountsMax) * WORD_BYTES),
    accountsMax,
  };
}

/** What there may be; it can change while bodies are in work. */
export interface BodyBounds {
  readonly bytesMax: number;
  /** The longest body that is accepted: it is had by whoever is alone, also where a share is less. */
  readonly bodyBytesMax: number;
  /** Bodies longer than this are large. */
  readonly parseInlineBytesMax: number;
}

/**
 * What a body of `bytes` costs at its peak: its pieces or its whole, and what is made of it for the upstream.
 */
export function memoryOfBody(bytes: number): number {
  return ceilDiv(bytes * BODY_MEMORY_FACTOR, BYTES_PER_KIB) * BYTES_PER_KIB;
}

export class BodyBudget {
  readonly #words: Int32Array;
  readonly #stripeWords: number;
  readonly #own: number;

  /** Of the listener of that index; what a listener that died in its place had taken is free again. */
  constructor(buffer: BodyBudgetBuffer, listenerIndex: number) {
    this.#words = new Int32Array(buffer.shared);
    this.#stripeWords = FIRST_ACCOUNT + buffer.accountsMax;
    this.#own = listenerIndex * this.#stripeWords;
    if (Atomics.load(this.#words, this.#own + TOTAL) !== 0) {
      this.#words.fill(0, this.#own, this.#own + this.#stripeWords);
    }
  }

  /**
   * Has an account hold a body of `bytes` of which it holds `heldBytes` already; says whose bound is in the
   * way, and then nothing has changed. Owner of the stripe.
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
    Atomics.sub(words, this.#own + TOTAL, kib);
    Atomics.sub(words, this.#own + FIRST_ACCOUNT + account, kib);
    return isFull ? 'full' : 'account_full';
  }

  /** Owner of the stripe, once for what a body holds at last. */
  giveBack(account: AccountIndex, heldBytes: number): void {
    const kib = kibOf(heldBytes);
    Atomics.sub(this.#words, this.#own + TOTAL, kib);
    Atomics.sub(this.#words, this.#own + FIRST_ACCOUNT + account, kib);
  }

  #sum(word: number): number {
    const words = this.#words;
    let kib = 0;
    for (let at = word; at < words.length; at += this.#stripeWords) kib += Atomics.load(words, at);
    return kib;
  }
}

/** What the bodies of all listeners hold. Main thread. */
export function bodyBytesInWork({ shared, accountsMax }: BodyBudgetBuffer): number {
  const words = new Int32Array(shared);
  let kib = 0;
  for (let at = TOTAL; at < words.length; at += FIRST_ACCOUNT + accountsMax) kib += Atomics.load(words, at);
  return kib * BYTES_PER_KIB;
}

function kibOf(bytes: number): number {
  return memoryOfBody(bytes) / BYTES_PER_KIB;
}
