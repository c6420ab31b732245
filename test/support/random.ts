/** Random values that a seed repeats. */

/** A number in [0, 1). */
export type Random = () => number;

/**
 * Numbers in [0, 1) from a 32-bit seed: mulberry32,
 * https://gist.github.com/tommyettinger/46a874533244883189143505d203312c (public domain).
 */
export function randomOf(seed: number): Random {
  const bits = randomBits(seed);
  return () => bits() / 2 ** 32;
}

/** Whole numbers from 0 to under the number that is asked for, from the same generator. */
export function randomBelow(seed: number): (limit: number) => number {
  const bits = randomBits(seed);
  return (limit) => bits() % limit;
}

function randomBits(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), state | 1);
    value ^= value + Math.imul(value ^ (value >>> 7), value | 61);
    return (value ^ (value >>> 14)) >>> 0;
  };
}

/** A new seed, or the one given as TOLLGATE_TEST_SEED to repeat a run. */
export function newSeed(): number {
  const given = process.env.TOLLGATE_TEST_SEED;
  return given === undefined || given === '' ? Math.floor(Math.random() * 2 ** 32) : Number(given);
}

export function pick<Value>(next: Random, values: readonly Value[]): Value {
  const value = values[Math.floor(next() * values.length)];
  if (value === undefined) throw new Error('nothing to pick from');
  return value;
}
