/**
 * Finds the slot of an account and a model, if the account's plan has a rule for the model. It is a hash
 * table with open addressing (a taken slot sends the search to the next one) in shared memory. ScopeChain
 * looks a pair up for each such call. The pair's first call takes a slot, which the pair keeps until the
 * process ends. Each thread has an object of its own over the same buffer. Any thread.
 *
 * Must hold: one pair has one slot on all threads, else its limit is given twice. So a slot is taken by a
 * compare-exchange, and never given back. Test: unit/ledger/quotas (a rule for a model holds for each account
 * apart); no test races two threads for a slot.
 */
import { type AccountIndex, asAccountIndex } from '../core/units.js';

/** How many slots are tried for one pair. If none is free, the call is rejected. */
const PROBES_MAX = 64;
/** 2^14 models are more than CATALOG_ENTRIES_MAX, so a pair fits one word. */
const MODEL_BITS = 14n;
/** Spreads pairs over the table: 2^32 divided by the golden ratio. */
const SPREAD = 0x9e3779b1;

export class ModelScopes {
  readonly #pairs: BigInt64Array;

  /** `pairs`: one 64-bit word a slot: 0 if the slot is free, else account × 2^14 + model + 1. */
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
