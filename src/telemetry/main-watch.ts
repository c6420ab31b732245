/**
 * Frees a main thread that waits for a lock of LMDB which is free. Each listener thread has one MainWatch,
 * which its ThreadHealth asks once a second or more often; the main thread of whoever opens an LMDB file
 * calls `takeInterrupts` (store/environment.ts).
 *
 * LMDB's lock between processes is a robust mutex, and such a mutex of Linux can lose a wake-up. Its owner
 * frees it, which wakes the first that waits, and takes it again at once. If that first one is killed before
 * it looks at the mutex, then the owner has not noted that others wait, and wakes nobody from then on. They
 * wait until two other threads happen to want the mutex at once, which may never be. Seen once in some 200
 * kills of processes that all wrote without a pause.
 *
 * A signal ends this: the system call is begun anew, finds another owner than before, or none, and the
 * waiting thread looks at the mutex again. Nothing else is interrupted, because libuv's handlers ask for
 * system calls to be begun anew. A command has no listener thread: it must be ended with Ctrl-C in that case.
 *
 * Must hold: a main thread that waits for a free lock goes on within 5 s. Test: e2e/main-watch.
 */
import { isMainThread } from 'node:worker_threads';
import { openStripe, THREAD_LOOKS, THREAD_STRIPE_WORDS, type MetricsBuffers } from './metrics-layout.js';

/**
 * Nobody else sends it, and a process that does not take it ignores it. Go's runtime interrupts its threads
 * by it for the same reasons (runtime/signal_unix.go, sigPreempt).
 */
const SIGNAL = 'SIGURG';
/** A main thread at rest looks once a second. */
const STUCK_MS = 2_500;
const MAIN_THREAD = 0;

/** From now on the signal interrupts the main thread. Else it is ignored. */
export function takeInterrupts(): void {
  if (isMainThread && process.listenerCount(SIGNAL) === 0) process.on(SIGNAL, () => undefined);
}

export class MainWatch {
  readonly #words: Float64Array;
  readonly #interrupt: () => void;
  #looks = -1;
  #sinceMs = 0;

  /** `interrupt` sends the signal to this process, whose main thread gets it; tests have their own. */
  constructor(buffers: MetricsBuffers, interrupt: () => void = () => process.kill(process.pid, SIGNAL)) {
    this.#words = openStripe(buffers.threads, MAIN_THREAD, THREAD_STRIPE_WORDS);
    this.#interrupt = interrupt;
  }

  /** Sends the signal if the main thread has not looked for STUCK_MS, and again as long as it does not. */
  look(nowMs: number): void {
    const looks = this.#words[THREAD_LOOKS]!;
    if (looks !== this.#looks) {
      this.#looks = looks;
      this.#sinceMs = nowMs;
    } else if (nowMs - this.#sinceMs >= STUCK_MS) {
      this.#sinceMs = nowMs;
      this.#interrupt();
    }
  }
}
