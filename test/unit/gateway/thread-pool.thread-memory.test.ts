/** The bounds of a thread's heap: taken by Node, and not above what it would take by itself. */
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { getHeapStatistics } from 'node:v8';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { threadMemory } from '#src/gateway/thread-pool.js';

const MIB = 1024 * 1024;

void t.test('each place that makes threads gives them', (t) => {
  const folder = join(process.cwd(), 'src');
  const makers = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((path) => /\.c?tsx?$/.test(path))
    .flatMap((path) => {
      const text = readFileSync(join(folder, path), 'utf8');
      const made = Array.from(text.matchAll(/\bnew (Worker|Piscina)\(/g), ([, name]) => name!);
      const given = text.split('resourceLimits: threadMemory()').length - 1;
      if (made.length > 0) t.equal(given, made.length, path);
      return made.map((name) => `${name} ${path}`);
    });
  t.same(makers.sort(), [
    'Piscina gateway/thread-pool.ts',
    'Worker gateway/listeners.ts',
    'Worker gateway/traces.ts',
  ]);
  t.end();
});

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
