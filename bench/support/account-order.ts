/** Orders in which a bench uses accounts; the same from the same seed. */

export const ORDERS = ['random', 'zipf', 'stride'] as const;
export type Order = (typeof ORDERS)[number];

/** A prime step visits every account before any twice. */
const STRIDE = 7_919;

/** Numbers from 0 up to 1, from a seed (mulberry32). */
export function unitRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The account of each of `rounds` calls. */
export function accountOrder(order: Order, accounts: number, rounds: number, seed: number): Uint32Array {
  const random = unitRandom(seed);
  // Neighbours in rank are no neighbours in memory.
  const scattered = (rank: number): number => (rank * STRIDE) % accounts;
  const next = {
    random: () => Math.floor(random() * accounts),
    // With weights 1/rank, the logarithm of the rank is uniform.
    zipf: () => scattered(Math.min(accounts, Math.floor(Math.exp(random() * Math.log(accounts + 1)))) - 1),
    stride: (n: number) => scattered(n),
  }[order];
  return Uint32Array.from({ length: rounds }, (_, n) => next(n));
}
