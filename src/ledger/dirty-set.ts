/**
 * The dirty sets: accounts, keys, groups and rules for models have one each. A set has one bit for each
 * scope, 1 if its money, use or limits have changed since the last flush read the scope. A thread that has
 * changed a scope then marks it, such as a listener that has settled a call. The main thread drains
 * (store/flush.ts, store/quota-uses.ts) and then keeps the scopes, until a commit has written them.
 *
 * A drain takes the bits, then reads the scopes. A change that it did not read was marked after it took the
 * bits, and comes with the next drain. So `mark` may leave a set bit: who takes it reads after the change.
 *
 * Must hold: a drain after each change visits the scope, also if a `visit` before has thrown, and no scope
 * starves.
 */
import { invariant } from '../core/errors.js';
import type { AccountIndex } from '../core/units.js';
import { type CountedViews, DIRTY_BITS_PER_WORD } from './layout.js';
import { lowestBitOf } from './packed-words.js';

/** How many words are compared with zeros at once: one page of memory. */
const PAGE_WORDS = 1_024;
const BYTES_PER_WORD = Int32Array.BYTES_PER_ELEMENT;
const CLEAN_PAGE = Buffer.alloc(PAGE_WORDS * BYTES_PER_WORD);

export class DirtySet<Index extends number = AccountIndex> {
  readonly #words: Int32Array;
  readonly #bytes: Buffer; // the same memory as #words, because a Buffer compares a page in one call
  /** The word where the next drain starts: if each began at 0, it might never get to the last scopes. */
  #cursor = 0;

  constructor(views: CountedViews) {
    this.#words = views.dirty;
    const { buffer, byteOffset, byteLength } = views.dirty;
    this.#bytes = Buffer.from(buffer, byteOffset, byteLength);
  }

  /** Marks a scope, by its slot; to be called after the change. 9 ns if it is marked already. Any thread. */
  mark(index: Index): void {
    // The shift divides by DIRTY_BITS_PER_WORD, 2^5.
    const word = index >>> 5;
    const bit = 1 << (index & (DIRTY_BITS_PER_WORD - 1));
    if ((Atomics.load(this.#words, word) & bit) === 0) Atomics.or(this.#words, word, bit);
  }

  /**
   * Takes at most `visitsMax` scopes out of the set and visits each. Returns how many: less if there are no
   * more. `visitsMax` is at least 32, the bits of a word: so the next drain empties the word where this one
   * stopped, and a scope that is always dirty starves no other. A million clean scopes cost 0.01 ms. If
   * `visit` throws, `drain` does too, and that scope and all later ones stay in the set. Main thread.
   */
  drain(visit: (index: Index) => void, visitsMax: number): number {
    invariant(visitsMax >= DIRTY_BITS_PER_WORD, `a drain takes at least ${DIRTY_BITS_PER_WORD} scopes`);
    const words = this.#words;
    let visited = 0;
    for (let passedWords = 0; passedWords < words.length && visited < visitsMax; passedWords++) {
      const word = this.#cursor;
      const cleanWords = this.#cleanWordsFrom(word);
      if (cleanWords > 0) {
        this.#cursor = (word + cleanWords) % words.length;
        // The loop's own step counts the first of these words.
        passedWords += cleanWords - 1;
        continue;
      }
      let bits = Atomics.load(words, word) === 0 ? 0 : Atomics.exchange(words, word, 0);
      try {
        while (bits !== 0 && visited < visitsMax) {
          visit((word * DIRTY_BITS_PER_WORD + lowestBitOf(bits)) as Index);
          bits &= bits - 1;
          visited++;
        }
      } finally {
        // Bits that were not visited go back, for the next drain to begin with.
        if (bits === 0) this.#cursor = (word + 1) % words.length;
        else Atomics.or(words, word, bits);
      }
    }
    return visited;
  }

  /** Words of the page that begins at `word` if none has a bit, else 0. A bit set meanwhile may wait. */
  #cleanWordsFrom(word: number): number {
    if (word % PAGE_WORDS !== 0) return 0;
    const count = Math.min(PAGE_WORDS, this.#words.length - word);
    const [begin, length] = [word * BYTES_PER_WORD, count * BYTES_PER_WORD];
    return this.#bytes.compare(CLEAN_PAGE, 0, length, begin, begin + length) === 0 ? count : 0;
  }
}
