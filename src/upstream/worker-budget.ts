/**
 * The bound on the bytes of non-streamed responses that all upstream workers of a process share.
 * gateway-start.ts makes the BudgetRecord, upstream-task.ts a WorkerBudget for its worker, and
 * chat-session.ts a ResponseBudget for each call. Upstream workers; `releaseBudget` is the main thread's.
 *
 * Must hold: each change goes into the word ALL and into the worker's own word, so that `releaseBudget` can
 * take what a dead worker held out of ALL (test/unit/upstream/worker-budget.test.ts).
 */
import { invariant } from '../core/errors.js';

/** The word of what all workers hold together. */
const ALL = 0;
/** The word of what the worker of that index holds. */
const wordOf = (worker: number): number => 1 + worker;

/** For a thread's `workerData`. 64-bit words: ALL, and one for each worker. `max`: the bound of ALL. */
export interface BudgetRecord {
  readonly buffer: SharedArrayBuffer;
  readonly max: number;
}

/** Called once a process for each bound, on the main thread. */
export function createBudget(workersMax: number, max: number): BudgetRecord {
  return { buffer: new SharedArrayBuffer(wordOf(workersMax) * BigInt64Array.BYTES_PER_ELEMENT), max };
}

/** Gives back what a dead worker held. Main thread, before the worker's successor starts. */
export function releaseBudget({ buffer }: BudgetRecord, worker: number): void {
  const words = new BigInt64Array(buffer);
  Atomics.sub(words, ALL, Atomics.exchange(words, wordOf(worker), 0n));
}

/** The access of one worker to a bound. */
export class WorkerBudget {
  readonly #words: BigInt64Array;
  readonly #worker: number;
  readonly #max: number;
  readonly #uncountedMax: number;

  /** An item that holds up to `uncountedMax` is not counted. */
  constructor({ buffer, max }: BudgetRecord, worker: number, uncountedMax = 0) {
    this.#words = new BigInt64Array(buffer);
    this.#worker = worker;
    this.#max = max;
    this.#uncountedMax = uncountedMax;
  }

  /** What this worker holds. */
  get held(): number {
    return Number(Atomics.load(this.#words, wordOf(this.#worker)));
  }

  /** Changes what an item holds; `from`: what it holds now. False, and no change, beyond the common bound. */
  change(from: number, to: number): boolean {
    const growth = this.#counted(to) - this.#counted(from);
    if (growth === 0) return true;
    const grown = BigInt(growth);
    const held = Number(Atomics.add(this.#words, ALL, grown)) + growth;
    if (growth > 0 && held > this.#max) {
      Atomics.sub(this.#words, ALL, grown);
      return false;
    }
    const before = Atomics.add(this.#words, wordOf(this.#worker), grown);
    invariant(before + grown >= 0n, 'what is given back was held');
    return true;
  }

  #counted(amount: number): number {
    return amount > this.#uncountedMax ? amount : 0;
  }
}

/**
 * The buffered bytes of one call's non-streamed response. Such a response is buffered in full: nothing is
 * sent until the response is validated, and it stays buffered until the client has read it, which may take
 * hours. Beyond the bound a response is given up, and its call gets a 503 and is not billed. If the response
 * waited instead, all responses would queue behind the slowest reader.
 */
export class ResponseBudget {
  readonly #allResponses: WorkerBudget;
  /** What WorkerBudget knows of the response. */
  #bytes = 0;

  constructor(allResponses: WorkerBudget) {
    this.#allResponses = allResponses;
  }

  /** Counts `bytes` more, or fewer if negative. Returns false, and counts nothing, beyond the bound. */
  grow(bytes: number): boolean {
    if (!this.#allResponses.change(this.#bytes, this.#bytes + bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  /** Gives all bytes back. Idempotent. */
  clear(): void {
    this.#allResponses.change(this.#bytes, 0);
    this.#bytes = 0;
  }
}
