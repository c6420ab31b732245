/**
 * The memory budget of non-streamed responses, which all upstream workers of a process share. gateway.ts
 * makes its memory, upstream-task.ts a WorkerResponseBudget for its worker, chat-session.ts a ResponseBudget
 * for each call. Upstream workers; `releaseResponses` is the main thread's.
 *
 * Must hold: what a worker holds is in the word of all and in its own, so that the first can be corrected
 * when the worker has died (test/unit/upstream/response-budget.test.ts).
 */
import { invariant } from '../core/errors.js';

/**
 * What the workers of a process hold of non-streamed responses, in bytes: word 0 together, word 1 + n the
 * worker of index n. A plain record, for a thread's `workerData`.
 */
export interface ResponseBudgetRecord {
  readonly buffer: SharedArrayBuffer;
  readonly bytesMax: number;
}

/** Called once a process, on the main thread. */
export function createResponseBudget(workersMax: number, bytesMax: number): ResponseBudgetRecord {
  return { buffer: new SharedArrayBuffer((1 + workersMax) * BigInt64Array.BYTES_PER_ELEMENT), bytesMax };
}

/** Gives back what a dead worker held. Main thread, before the worker's successor starts. */
export function releaseResponses({ buffer }: ResponseBudgetRecord, worker: number): void {
  const words = new BigInt64Array(buffer);
  Atomics.sub(words, 0, Atomics.exchange(words, 1 + worker, 0n));
}

/**
 * Bounds the memory of all non-streamed responses of a process, for one of its workers. Such a response is
 * buffered in full: nothing is sent until the response is validated, and it stays buffered until the client
 * has read it, which may take hours. Beyond the bound a response is given up, and its call gets a 503 and is
 * not billed. If the response waited instead, all responses would queue behind the slowest reader.
 */
export class WorkerResponseBudget {
  readonly #words: BigInt64Array;
  readonly #worker: number;
  readonly #bytesMax: number;
  readonly #uncountedBytesMax: number;

  /** A response up to `uncountedBytesMax` is not counted: the bound on calls in flight bounds these. */
  constructor({ buffer, bytesMax }: ResponseBudgetRecord, worker: number, uncountedBytesMax: number) {
    this.#words = new BigInt64Array(buffer);
    this.#worker = worker;
    this.#bytesMax = bytesMax;
    this.#uncountedBytesMax = uncountedBytesMax;
  }

  /** What this worker holds. */
  get heldBytes(): number {
    return Number(Atomics.load(this.#words, 1 + this.#worker));
  }

  /** Changes what a response holds from `fromBytes` to `toBytes`. False beyond the bound: no change. */
  change(fromBytes: number, toBytes: number): boolean {
    const grownBytes = this.#counted(toBytes) - this.#counted(fromBytes);
    if (grownBytes === 0) return true;
    const grown = BigInt(grownBytes);
    const heldBytes = Number(Atomics.add(this.#words, 0, grown)) + grownBytes;
    if (grownBytes > 0 && heldBytes > this.#bytesMax) {
      Atomics.sub(this.#words, 0, grown);
      return false;
    }
    const before = Atomics.add(this.#words, 1 + this.#worker, grown);
    invariant(before + grown >= 0n, 'what is given back was held');
    return true;
  }

  #counted(bytes: number): number {
    return bytes > this.#uncountedBytesMax ? bytes : 0;
  }
}

/** The buffered bytes of one call's response. */
export class ResponseBudget {
  readonly #allResponses: WorkerResponseBudget;
  #bytes = 0;

  constructor(allResponses: WorkerResponseBudget) {
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
