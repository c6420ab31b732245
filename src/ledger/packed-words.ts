/**
 * 64-bit words of shared memory that hold a head (the number of a day, month or tick, modulo 2^headBits) in
 * their high bits, and an amount in the others. stocks.ts, leased-stocks.ts and token-window.ts use them;
 * files that walk over masks use `lowestBitOf`. Any thread.
 *
 * A word is handled as two halves of 32 bits, which are numbers: an atomic load and an exchange take 41 ns
 * with BigInts, `glance` and `compareExchange` 17 ns (V8 11.3), because most of the time goes into making the
 * BigInts.
 *
 * `glance` is no atomic load: the two halves may be of different moments. A glance is safe before an
 * exchange, which fails unless the word still is what `glance` saw. A thread that by a glance would decide
 * not to exchange must `load` the word and decide again. `addWithin` and `takeOff` begin by a glance too.
 *
 * Must hold: an exchange succeeds only if the word still is what was read, and ADDED means that the amount
 * fitted when it was added. `add` and `addWithin` add to all 64 bits, so that an amount which outgrows its
 * bits changes the head: the users keep amounts below half of what their bits hold (AMOUNT_MAX and ADDED_MAX
 * of stocks.ts), or let them wrap and have no head there (`taken` and `settled` of token-window.ts). An
 * amount is read exactly up to 2^53. Nothing here waits, so one scratch serves all objects of a thread.
 * Further tests: test/unit/ledger/stocks.test.ts, test/unit/ledger/token-window.test.ts,
 * test/threads/ledger-tokens.test.ts.
 */
import { endianness } from 'node:os';
import { invariant } from '../core/errors.js';

invariant(endianness() === 'LE', 'the low half of a word comes first');

const TWO_32 = 2 ** 32;

/**
 * How many of the 64 bits the head has: 11 in stocks.ts, 22 in token-window.ts. A type, because these shifts
 * are wrong for 0 or for 32 and more: JavaScript shifts by the number modulo 32.
 */
export type HeadBits = 11 | 22;

/** The two halves, signed, of a word as it was read or is to be written. */
export interface Halves {
  low: number;
  high: number;
}

/**
 * Scratch of this module: two words, and the same memory as halves, to turn one form into the other. Each
 * function overwrites it, so none keeps a value there while it calls another.
 */
const words = new BigInt64Array(2);
const halves = new Int32Array(words.buffer);

/** `Number(word)` of a signed 64-bit word, without the call into V8's runtime, which takes 50 ns. */
export function numberOf(word: bigint): number {
  words[0] = word;
  return halves[1]! * TWO_32 + (halves[0]! >>> 0);
}

/**
 * Sets `into` to `head` modulo 2^headBits, above `amount`, which is not negative. An amount that needs more
 * than the other bits loses its high bits: AMOUNT_MAX of stocks.ts keeps amounts below that, and
 * token-window.ts counts modulo 2^42.
 */
export function pack(into: Halves, headBits: HeadBits, head: number, amount: number): void {
  const high = Math.floor(amount / TWO_32);
  into.low = (amount - high * TWO_32) | 0;
  into.high = (head << (32 - headBits)) | (high & (-1 >>> headBits));
}

/** The amount below the head. */
export function amountOf({ low, high }: Halves, headBits: HeadBits): number {
  return ((high << headBits) >>> headBits) * TWO_32 + (low >>> 0);
}

/** How far `head` is after the head of the word; negative if before. Right up to half of 2^headBits. */
export function headsSince({ high }: Halves, headBits: HeadBits, head: number): number {
  return ((head - (high >>> (32 - headBits))) << (32 - headBits)) >> (32 - headBits);
}

/** The words of one buffer; `index` counts words of 64 bits. Each thread has objects of its own over it. */
export class PackedWords {
  readonly #words: BigInt64Array;
  readonly #halves: Int32Array;

  constructor(words64: BigInt64Array) {
    this.#words = words64;
    this.#halves = new Int32Array(words64.buffer, words64.byteOffset, words64.length * 2);
  }

  /** Reads the word, but not atomically: see the header. */
  glance(index: number, into: Halves): void {
    into.low = this.#halves[2 * index]!;
    into.high = this.#halves[2 * index + 1]!;
  }

  load(index: number, into: Halves): void {
    words[0] = Atomics.load(this.#words, index);
    into.low = halves[0]!;
    into.high = halves[1]!;
  }

  store(index: number, word: Halves): void {
    halves[0] = word.low;
    halves[1] = word.high;
    Atomics.store(this.#words, index, words[0]!);
  }

  /** Atomically replaces the word by `to`. Returns false, and changes nothing, if the word is not `from`. */
  compareExchange(index: number, from: Halves, to: Halves): boolean {
    halves[0] = from.low;
    halves[1] = from.high;
    halves[2] = to.low;
    halves[3] = to.high;
    words[0] = Atomics.compareExchange(this.#words, index, words[0]!, words[1]!);
    return halves[0] === from.low && halves[1] === from.high;
  }

  /** Atomically adds a whole number, maybe negative, to all 64 bits. Sets `before` to what they were. */
  add(index: number, amount: number, before: Halves): void {
    words[0] = Atomics.add(this.#words, index, addendOf(amount));
    before.low = halves[0]!;
    before.high = halves[1]!;
  }

  /**
   * Atomically adds `amount` (not negative) if the word has that head, and below it less than `max`, and room
   * for the amount up to `max`. Returns ADDED, and `before` is what the word was. Returns MISSED, and adds
   * nothing, if a glance shows otherwise: it may be wrong, so decide by a `load`. Returns MISADDED if only
   * `before` shows it: the amount is in the word, whatever its head, until the caller takes it off again.
   */
  addWithin(
    index: number,
    headBits: HeadBits,
    head: number,
    amount: number,
    max: number,
    before: Halves,
  ): typeof MISSED | typeof ADDED | typeof MISADDED {
    // `amountOf` and the comparison of heads are written out here and in `takeOff`: a tenth of the time less.
    const shift = 32 - headBits;
    const headHigh = head << shift;
    let low = this.#halves[2 * index]!;
    let high = this.#halves[2 * index + 1]!;
    let below = ((high << headBits) >>> headBits) * TWO_32 + (low >>> 0);
    if ((high ^ headHigh) >>> shift !== 0 || below >= max || below + amount > max) return MISSED;
    words[0] = Atomics.add(this.#words, index, addendOf(amount));
    before.low = low = halves[0]!;
    before.high = high = halves[1]!;
    below = ((high << headBits) >>> headBits) * TWO_32 + (low >>> 0);
    return (high ^ headHigh) >>> shift === 0 && below < max && below + amount <= max ? ADDED : MISADDED;
  }

  /**
   * Takes `amount` (not negative) off the word by a compare-exchange, if the word has that head and as much
   * below it. Returns false, and changes nothing, if not, or if another thread changes the word meanwhile.
   * Takes a quarter less time than `compareExchange`: the word is not made of halves again.
   */
  takeOff(index: number, headBits: HeadBits, head: number, amount: number): boolean {
    const word = this.#words[index]!;
    words[0] = word;
    const low = halves[0]!;
    const high = halves[1]!;
    const below = ((high << headBits) >>> headBits) * TWO_32 + (low >>> 0);
    if ((high ^ (head << (32 - headBits))) >>> (32 - headBits) !== 0 || below < amount) return false;
    const rest = BigInt.asIntN(64, word + addendOf(-amount));
    words[0] = Atomics.compareExchange(this.#words, index, word, rest);
    return halves[0] === low && halves[1] === high;
  }
}

/** Results of `addWithin`. */
export const MISSED = 0;
export const ADDED = 1;
export const MISADDED = 2;

const ZERO: Halves = { low: 0, high: 0 };
/** Scratch of `addendOf`: the halves of the number. */
const addend: Halves = { low: 0, high: 0 };
/**
 * The last numbers of `addendOf`, a negative one and another, and the same as BigInts. A call adds the same
 * amounts to several words, and to make a BigInt takes time.
 */
const lastAmounts = new Float64Array(2);
const lastAddends = [0n, 0n];

function addendOf(amount: number): bigint {
  if (amount === 1) return 1n;
  const sign = amount < 0 ? 0 : 1;
  if (amount !== lastAmounts[sign]) {
    addTo(ZERO, amount, addend);
    halves[0] = addend.low;
    halves[1] = addend.high;
    lastAmounts[sign] = amount;
    lastAddends[sign] = words[0]!;
  }
  return lastAddends[sign]!;
}

/** Sets `into` to the 64 bits of `word` plus a whole number, which may be negative. */
export function addTo(word: Halves, amount: number, into: Halves): void {
  const high = Math.floor(amount / TWO_32);
  const low = (word.low >>> 0) + (amount - high * TWO_32);
  into.low = low | 0;
  into.high = (word.high + high + (low >= TWO_32 ? 1 : 0)) | 0;
}

/** The number of the lowest bit that is set: in a mask of quotas the first quota. `bits` is not 0. */
export function lowestBitOf(bits: number): number {
  return 31 - Math.clz32(bits & -bits);
}
