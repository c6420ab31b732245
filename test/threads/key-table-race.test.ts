/**
 * A thread looks up keys that stay, while the main thread inserts, moves, disables and removes others around
 * them.
 */
import { once } from 'node:events';
import t from 'tap';
import { Worker } from 'node:worker_threads';
import { asAccountIndex, asKeyIndex } from '#src/core/units.js';
import { digestOf } from '#src/registry/key-digest.js';
import { createKeyTableBuffers, KeyTable } from '#src/registry/key-table.js';
import type { ReaderReport } from '../fixtures/ledger-key-reader.worker.js';
import { newSeed, randomBelow } from '../support/random.js';

const KEYS = 256;
/** Every fourth key stays for good. */
const STAYING = 4;

void t.test(
  'a key that is in the table all the time is always found, one that never was is not',
  async (t) => {
    const seed = newSeed();
    t.comment(`seed ${seed}`);
    const random = randomBelow(seed);
    const buffers = createKeyTableBuffers({ keysMax: KEYS });
    const table = new KeyTable(buffers);
    for (let key = 0; key < KEYS; key++) {
      table.insert(asKeyIndex(key), digestOf(`key ${key}`), asAccountIndex(key), true);
    }
    const steering = new SharedArrayBuffer(8);
    const words = new Int32Array(steering);
    const worker = new Worker(new URL('../fixtures/ledger-key-reader.worker.js', import.meta.url), {
      workerData: { buffers, steering, keys: KEYS, staying: STAYING },
    });
    await once(worker, 'message');
    let changes = 0;
    // Goes on until the reader has looked often enough; the bound is for a reader that died.
    for (; Atomics.load(words, 1) < 200_000 && changes < 50_000_000; changes++) {
      const key = random(KEYS);
      if (key % STAYING === 0) continue;
      table.remove(asKeyIndex(key));
      table.insert(asKeyIndex(key), digestOf(`key ${key} ${changes}`), asAccountIndex(key), true);
    }
    Atomics.store(words, 0, 1);
    const [report] = (await once(worker, 'message')) as [ReaderReport];
    t.same(report, { lost: 0, wrong: 0 }, `${changes} changes`);
  },
);
