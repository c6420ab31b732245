import t from 'tap';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { SystemClock } from '#src/core/clock.js';

const THREADS = 4;
/** A tick of the ledger's window allows for 1.5 ms. */
const DIFFERENCE_MS_MAX = 1;

void t.test('the monotonic clock has one base for all threads', async (t) => {
  const source = `
    const { parentPort, workerData } = require('node:worker_threads');
    import(workerData).then(({ SystemClock }) => {
      const clock = new SystemClock();
      parentPort.on('message', () => parentPort.postMessage(clock.monotonicMs()));
    });`;
  const clock = new SystemClock();
  for (let thread = 0; thread < THREADS; thread += 1) {
    const worker = new Worker(source, { eval: true, workerData: import.meta.resolve('#src/core/clock.js') });
    // The other thread reads its clock between two readings of ours, so it lies between them but for the
    // difference.
    for (let round = 0; round < 10; round += 1) {
      const before = clock.monotonicMs();
      worker.postMessage('read');
      const [theirs] = (await once(worker, 'message')) as [number];
      const after = clock.monotonicMs();
      t.ok(
        theirs >= before - DIFFERENCE_MS_MAX && theirs <= after + DIFFERENCE_MS_MAX,
        `${before} ${theirs} ${after}`,
      );
    }
    await worker.terminate();
  }
});

void t.test('it never goes back, and the wall clock is the calendar', (t) => {
  const clock = new SystemClock();
  let last = clock.monotonicMs();
  for (let reading = 0; reading < 10_000; reading += 1) {
    const next = clock.monotonicMs();
    if (next < last) t.fail(`${next} after ${last}`);
    last = next;
  }
  t.ok(Math.abs(clock.wallMs() - Date.now()) < 1_000);
  t.end();
});
