/**
 * Finds the slot of an account and a model, if the account's plan has a rule for the model: a hash table in
 * shared memory, with open addressing (a taken slot sends the search to the next slot). The pair's first call
 * takes a slot, which the pair keeps until the process ends. scope-chain.ts asks for each such call, and
 * registry/live-buffers.ts when it restores what a rule has used. Any thread, each with an object of its own
 * over the same buffer.
 *
 * Must hold: one pair has one slot on all threads, else its limit is given twice. So a slot is taken by a
 * compare-exchange, and never given back. Further test: test/unit/ledger/quotas.test.ts (a rule for a model
 * holds for each account apart).
 */
import { invariant } from '../core/errors.js';
import { ACCOUNTS_MAX, CATALOG_ENTRIES_MAX } from '../core/limits.js';
import { type AccountIndex, asAccountIndex, asModelScopeIndex, type ModelScopeIndex } from '../core/units.js';

/** How many slots are tried for one pair. If all have other pairs, the call is rejected. */
const PROBES_MAX = 64;
/** Bits of the model in the word of a pair; the account is above. */
const MODEL_BITS = 14n;
invariant(BigInt(CATALOG_ENTRIES_MAX) <= 1n << MODEL_BITS, 'no model reaches into the bits of the account');
invariant(BigInt(ACCOUNTS_MAX) << MODEL_BITS < 1n << 63n, 'a pair fits a signed word');
/** Spreads accounts over the table: 2^32 divided by the golden ratio. */
const SPREAD = 0x9e3779b1;
/** Spreads models. With SPREAD itself all pairs of account n and model n - 1 would begin at slot 0. */
const MODEL_SPREAD = SPREAD >>> 7;

export class ModelScopes {
  readonly #pairs: BigInt64Array;

  /** `pairs`: one 64-bit word a slot: 0 if the slot is free, else account × 2^14 + model + 1. */
  constructor(pairs: BigInt64Array) {
    this.#pairs = pairs;
  }

  /** The slot of the pair. A pair without a slot takes one; undefined if all that it tries are taken. */
  slotOf(account: AccountIndex, modelIndex: number): ModelScopeIndex | undefined {
    const slots = this.#pairs.length;
    const pair = (BigInt(account) << MODEL_BITS) + BigInt(modelIndex) + 1n;
    let slot = (Math.imul(account, SPREAD) ^ Math.imul(modelIndex + 1, MODEL_SPREAD)) >>> 0;
    for (let probe = 0; probe < Math.min(PROBES_MAX, slots); probe++, slot++) {
      const index = slot % slots;
      const word = Atomics.load(this.#pairs, index);
      if (word === pair) return asModelScopeIndex(index);
      if (word !== 0n) continue;
      const before = Atomics.compareExchange(this.#pairs, index, 0n, pair);
      if (before === 0n || before === pair) return asModelScopeIndex(index);
    }
    return undefined;
  }

  /** The pair that has the slot; undefined if the slot is free. */
  pairOf(slot: ModelScopeIndex): { readonly account: AccountIndex; readonly modelIndex: number } | undefined {
    const word = Atomics.load(this.#pairs, slot) - 1n;
    if (word < 0n) return undefined;
    const modelIndex = Number(BigInt.asUintN(Number(MODEL_BITS), word));
    return { account: asAccountIndex(Number(word >> MODEL_BITS)), modelIndex };
  }
}
