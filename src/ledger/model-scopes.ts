/**
 * Which slot counts the calls of an account of a model that its plan has a rule for: a table of open
 * addressing in shared memory. The first call of the pair takes a slot, which it keeps until the process
 * ends. Each thread has one over the same buffer. Any thread.
 */
import { type AccountIndex, asAccountIndex } from '../core/units.js';

/** Slots looked at for one pair. */
const PROBES_MAX = 64;
/** More than CATALOG_ENTRIES_MAX. */
const MODEL_BITS = 14n;
/** Spreads pairs over the table: 2^32 divided by the golden ratio. */
const SPREAD = 0x9e3779b1;

export class ModelScopes {
  readonly #pairs: BigInt64Array;

  /** `pairs`: one word a slot, a power of two of them; 0, or the pair + 1. */
  constructor(pairs: BigInt64Array) {
    this.#pairs = pairs;
  }

  /** The slot of the pair, which takes one if it has none; undefined if it finds none free. */
  slotOf(account: AccountIndex, modelIndex: number): number | undefined {
    const slots = this.#pairs.length;
    const pair = (BigInt(account) << MODEL_BITS) + BigInt(modelIndex) + 1n;
    let slot = (Math.imul(account, SPREAD) ^ Math.imul(modelIndex + 1, SPREAD >>> 7)) >>> 0;
    for (let probe = 0; probe < Math.min(PROBES_MAX, slots); probe++, slot++) {
      const at = slot % slots;
      const seen = Atomics.load(this.#pairs, at);
      if (seen === pair) return at;
      if (seen !== 0n) continue;
      const other = Atomics.compareExchange(this.#pairs, at, 0n, pair);
      if (other === 0n || other === pair) return at;
    }
    return undefined;
  }

  /** The pair that has the slot; undefined if none has. */
  pairOf(slot: number): { readonly account: AccountIndex; readonly modelIndex: number } | undefined {
    const word = Atomics.load(this.#pairs, slot) - 1n;
    if (word < 0n) return undefined;
    const modelIndex = Number(BigInt.asUintN(Number(MODEL_BITS), word));
    return { account: asAccountIndex(Number(word >> MODEL_BITS)), modelIndex };
  }
}
