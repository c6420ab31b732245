/**
 * Bounds of a thread's JavaScript heap, the same on every release of Node. Main thread.
 *
 * They are less against a leak than against V8's generosity. Node 24 gives each thread 192 MiB for new objects, and keeps what a
 * burst has taken; and where the whole heap may pass 2 GiB, V8 lets it grow to four times what is alive before it collects in earnest,
 * and with it wait the buffers and sockets that hang on it. After seven bursts of 1,000 streams a gateway on Node 24 held 674 MiB, and
 * holds 394 with these bounds, as on Node 20.
 */
import { getHeapStatistics } from 'node:v8';
import type { ResourceLimits } from 'node:worker_threads';

/** Node 20's own. */
const YOUNG_MIB = 48;
/** A call in flight takes some 20 KB of it, long answers none: 50,000 calls a thread. A thread that wants more is ended. */
const OLD_MIB_MAX = 1_536;
const BYTES_PER_MIB = 1024 * 1024;

/** For a `Worker`, and for a pool of them. */
export function threadMemory(): ResourceLimits {
  // On a small machine Node takes less by itself.
  const ownMib = Math.floor(getHeapStatistics().heap_size_limit / BYTES_PER_MIB);
  return { maxYoungGenerationSizeMb: YOUNG_MIB, maxOldGenerationSizeMb: Math.min(OLD_MIB_MAX, ownMib) };
}
