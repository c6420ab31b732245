/**
 * With `durability: commit` a response ends only when its charge is on disk. PendingCommits keeps the
 * responses that wait for that, and asks the main thread to commit (group commit). request/delivery.ts and
 * request/replay.ts add responses, request/listener.thread.ts passes on the replies. Listener thread.
 *
 * Must hold: of each response one method is called, once. Responses leave in the order of the journal, which
 * is the order in which their charges reach the disk. One question at a time is scheduled or on its way.
 */
import type { Clock } from '../core/clock.js';
import { COMMIT_WAIT_MS_MAX } from '../core/limits.js';
import type { JournalWriter } from './journal.js';

/** A response whose end waits until its charge is on disk. */
export interface PendingCommit {
  onCommitted(): void;
  /** The store fails or is too slow: the charge may not be on disk. */
  onUncommitted(): void;
}

interface Waiting {
  /** Of the charge's record in the journal. */
  readonly position: number;
  /** Since when the response waits (monotonic). */
  readonly sinceMs: number;
  readonly response: PendingCommit;
}

/**
 * One question to the main thread is for all responses that wait by then. Those that come before the reply
 * share the next question. The calls in flight bound how many responses wait, and `onSweep` bounds for how
 * long.
 */
export class PendingCommits {
  readonly #journal: JournalWriter;
  readonly #clock: Clock;
  readonly #askCommit: () => void;
  /** In the order of the journal. */
  #waiting: Waiting[] = [];
  #isAsked = false; // whether a question to the main thread is scheduled, or waits for its reply

  /** `askCommit` asks the main thread for a commit. The listener passes the reply to `onCommit`. */
  constructor(journal: JournalWriter, clock: Clock, askCommit: () => void) {
    this.#journal = journal;
    this.#clock = clock;
    this.#askCommit = askCommit;
  }

  get size(): number {
    return this.#waiting.length;
  }

  /** Keeps `response` until the record at `position` of the journal is on disk. */
  add(position: number, response: PendingCommit): void {
    this.#waiting.push({ position, sinceMs: this.#clock.monotonicMs(), response });
    if (this.#isAsked) return;
    this.#isAsked = true;
    // Asked after this event-loop turn, so that one question is for all responses of the turn.
    setImmediate(this.#askCommit);
  }

  /**
   * Called with the main thread's reply. If not `isCommitted`, the store fails: all responses that wait give
   * up. If a response throws, no further question is asked: the exception ends the listener
   * (request/listener.thread.ts), which calls `giveUpAll`.
   */
  onCommit(isCommitted: boolean): void {
    // `#isAsked` stays set meanwhile: the question below is also for what a response adds as it ends.
    if (isCommitted) this.#endCommitted();
    else this.giveUpAll();
    this.#isAsked = this.#waiting.length > 0;
    if (this.#isAsked) this.#askCommit();
  }

  /** Ends the responses whose charges are on disk, gives up all others. Called if the listener fails, too. */
  giveUpAll(): void {
    this.#endCommitted();
    this.#giveUp(this.#waiting.length);
  }

  /** Called about once a second: gives up the responses that have waited for COMMIT_WAIT_MS_MAX. */
  onSweep(): void {
    this.#endCommitted();
    const oldestMs = this.#clock.monotonicMs() - COMMIT_WAIT_MS_MAX;
    const firstInTime = this.#waiting.findIndex(({ sinceMs }) => sinceMs > oldestMs);
    this.#giveUp(firstInTime < 0 ? this.#waiting.length : firstInTime);
  }

  #endCommitted(): void {
    let count = 0;
    let first = this.#waiting[0];
    while (first !== undefined && this.#journal.isCommitted(first.position)) first = this.#waiting[++count];
    this.#call('onCommitted', count);
  }

  /** Gives up the first `count` responses, which have waited longest. */
  #giveUp(count: number): void {
    this.#call('onUncommitted', count);
  }

  /**
   * Calls the method of the first `count` responses, which leave. If one throws, those after it wait again.
   * All leave at once, because `shift` moves all others if there are more than some 16,000.
   */
  #call(method: keyof PendingCommit, count: number): void {
    if (count === 0) return;
    const leaving = this.#waiting.splice(0, count);
    let called = 0;
    try {
      while (called < count) leaving[called++]!.response[method]();
    } finally {
      if (called < count) this.#waiting = [...leaving.slice(called), ...this.#waiting];
    }
  }
}
