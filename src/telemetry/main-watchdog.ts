/**
 * Frees a main thread that waits for a lock of LMDB although the lock is free. Each listener thread creates
 * one MainWatchdog, and its ThreadHealth calls `check` at least once a second. store/environment.ts calls
 * `installSignalHandler` at each opening of LMDB; it acts only on the main thread.
 *
 * LMDB's lock between processes is a robust mutex, and such a mutex of Linux can lose a wake-up:
 *
 *     1. Process A has the lock. Threads B and C wait for it.
 *     2. A frees the lock, which wakes B, and takes the lock again at once.
 *     3. B is killed before it has marked the lock as awaited again.
 *     4. A frees the lock. Nothing marks it as awaited, so A wakes nobody: C waits for a lock that is free.
 *     5. C waits until two more threads happen to need the lock at the same time, which may never be.
 *
 * Such a wait was seen once in some 200 kills of processes that all wrote without a pause.
 *
 * A signal frees C: the kernel interrupts its system call and restarts it, the call finds that the lock has
 * changed, and C tries to take it again. Other system calls restart too (libuv installs handlers with
 * SA_RESTART). So the signal does no harm to a main thread that is only busy: the empty handler runs when the
 * event loop goes on.
 *
 * A command has no listener thread that could watch it. The operator must end such a wait with Ctrl-C.
 *
 * Must hold:
 * - A main thread that waits for a free lock continues within 5 s (test/e2e/main-watchdog.test.ts).
 * - A main thread whose event loop runs gets no signal (test/unit/telemetry/main-watchdog.test.ts).
 */
import { isMainThread } from 'node:worker_threads';
import {
  MAIN_THREAD,
  type MetricsBuffers,
  openStripe,
  THREAD_MEASUREMENTS,
  THREAD_STRIPE_WORDS,
} from './metrics-layout.js';

/**
 * Nothing else sends this signal, and a process without a handler ignores it. For the same reasons Go's
 * runtime interrupts its threads by it (runtime/signal_unix.go, sigPreempt).
 */
const SIGNAL = 'SIGURG';
/** Longer than a second, in which also an idle main thread adds 1 to its counter THREAD_MEASUREMENTS. */
const STUCK_MS = 2_500;

/**
 * Installs a handler, because without one the signal is ignored and interrupts nothing. Does nothing in other
 * threads than the main thread, and at a second call.
 */
export function installSignalHandler(): void {
  if (isMainThread && process.listenerCount(SIGNAL) === 0) process.on(SIGNAL, () => undefined);
}

export class MainWatchdog {
  readonly #words: Float64Array;
  readonly #interrupt: () => void;
  /** The counter's last value; -1 before it was read. */
  #measurements = -1;
  /** When this watch first read that value, or last sent the signal. */
  #sinceMs = 0;

  /**
   * `interrupt` sends the signal to this process; tests replace it. Linux gives a signal to the main thread
   * of the process; only if the main thread blocks the signal, to another (complete_signal in
   * kernel/signal.c).
   */
  constructor(buffers: MetricsBuffers, interrupt: () => void = () => process.kill(process.pid, SIGNAL)) {
    this.#words = openStripe(buffers.threads, MAIN_THREAD, THREAD_STRIPE_WORDS);
    this.#interrupt = interrupt;
  }

  /**
   * Sends the signal if the main thread's counter has stood still for STUCK_MS, and again every STUCK_MS: a
   * stuck thread and a busy one look the same from here. `nowMs` is this thread's monotonic time.
   */
  check(nowMs: number): void {
    const measurements = this.#words[THREAD_MEASUREMENTS]!;
    if (measurements !== this.#measurements) {
      this.#measurements = measurements;
      this.#sinceMs = nowMs;
    } else if (nowMs - this.#sinceMs >= STUCK_MS) {
      this.#sinceMs = nowMs;
      this.#interrupt();
    }
  }
}
