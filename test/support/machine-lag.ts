/**
 * How late this machine is: the worst that a timer with a small write to disk took beyond its period in one
 * span. Bounds on the time of other processes are widened by it, so that they are about the product and not
 * about its neighbours.
 */
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const PERIOD_MS = 20;
const PROBE = Buffer.alloc(4_096);

export class MachineLag {
  readonly #done: Promise<void>;
  #turnBeganMs = performance.now();
  #worstMs = 0;
  #isOver = false;

  /** Writes to a file in `folder`, which is to be on the disk that matters. */
  constructor(folder: string) {
    this.#done = this.#watch(join(folder, 'machine-lag'));
  }

  async #watch(path: string): Promise<void> {
    const file = await open(path, 'w');
    while (!this.#isOver) {
      await sleep(PERIOD_MS);
      await file.write(PROBE, 0, PROBE.length, 0);
      await file.datasync();
      this.#worstMs = Math.max(this.#worstMs, performance.now() - this.#turnBeganMs - PERIOD_MS);
      this.#turnBeganMs = performance.now();
    }
    await file.close();
  }

  /** The worst since the start, the turn that runs now with it, which is waited for. */
  async end(): Promise<number> {
    this.#isOver = true;
    await this.#done;
    return this.#worstMs;
  }
}
