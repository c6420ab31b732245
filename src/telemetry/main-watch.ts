/**
 * Frees a main thread that waits for a lock of LMDB although the lock is free. Each listener thread has one
 * MainWatch, which its ThreadHealth calls once a second or more often. store/environment.ts calls
 * `takeInterrupts` on the main thread of a process that opens LMDB.
 *
 * LMDB's lock between processes is a robust mutex, and such a mutex of Linux can lose a wake-up. Its owner
 * frees it, which wakes the first waiting thread, and takes it again at once. If that thread is killed before
 * it marks the mutex as contended, the owner wakes nobody at the next unlock. The others wait until two more
 * threads happen to want the mutex at once, which may never be. Seen once in some 200 kills of processes that
 * all wrote without a pause.
 *
 * A signal ends this: the system call restarts, finds another owner than before, or none, and the waiting
 * thread tries the mutex again. Nothing else is interrupted, because libuv's handlers ask for system calls to
 * restart (SA_RESTART). A command has no listener thread: in that case it must be ended with Ctrl-C.
 *
 * Must hold: a main thread that waits for a free lock continues within 5 s (test/e2e/main-watch.test.ts).
 */
import { isMainThread } from 'node:worker_threads';
import { openStripe, THREAD_LOOKS, THREAD_STRIPE_WORDS, type MetricsBuffers } from './metrics-layout.js';

/**
 * Nobody else sends it, and a process without a handler ignores it. Go's runtime interrupts its threads by it
 * for the same reasons (runtime/signal_unix.go, sigPreempt).
 */
const SIGNAL = 'SIGURG';
/** Longer than an idle main thread leaves its counter THREAD_LOOKS alone: it adds to it once a second. */
const STUCK_MS = 2_500;
const MAIN_THREAD = 0;

/** Installs a handler, because without one the signal is ignored and interrupts nothing. */
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

  /** Sends the signal if the main thread's counter has stood still for STUCK_MS, and again every STUCK_MS. */
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
