/**
 * V8's collections of garbage, on demand.
 */
import { setFlagsFromString, getHeapStatistics } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
/** Collects all garbage; with `minor` only what is young. */
export const collect = runInNewContext('gc') as (options?: { type: 'minor' }) => void;

/**
 * By how many bytes the heap has grown after 10,000 more calls of `come`, with small collections only. What
 * lives at the beginning is old; what is old stays there, dead or alive, and keeps alive what it points to.
 */
export function grownBytes(come: () => void): number {
  for (let count = 0; count < 1_000; count++) come();
  collect();
  const before = getHeapStatistics().used_heap_size;
  for (let count = 0; count < 10_000; count++) {
    come();
    if (count % 1_000 === 999) collect({ type: 'minor' });
  }
  return getHeapStatistics().used_heap_size - before;
}
