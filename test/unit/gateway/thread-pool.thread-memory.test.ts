/** The bounds of a thread's heap: taken by Node, and not above what it would take by itself. */
import { once } from 'node:events';
import { getHeapStatistics } from 'node:v8';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { threadMemory } from '#src/gateway/thread-pool.js';

const MIB = 1024 * 1024;

void t.test('a thread gets them', async (t) => {
  const wanted = threadMemory();
  t.ok(wanted.maxYoungGenerationSizeMb! <= 48);
  t.ok(wanted.maxOldGenerationSizeMb! * MIB <= Math.min(getHeapStatistics().heap_size_limit, 1_536 * MIB));
  const script = `const { parentPort, resourceLimits } = require('node:worker_threads');
    parentPort.postMessage([resourceLimits, require('node:v8').getHeapStatistics().heap_size_limit]);`;
  const thread = new Worker(script, { eval: true, resourceLimits: wanted });
  const [[limits, heapBytes]] = (await once(thread, 'message')) as [[object, number]];
  t.match(limits, wanted);
  const sum = (wanted.maxYoungGenerationSizeMb! + wanted.maxOldGenerationSizeMb!) * MIB;
  t.ok(heapBytes <= sum, `${heapBytes} of ${sum}`);
});
