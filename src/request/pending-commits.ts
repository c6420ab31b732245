/**
 * With `durability: commit`: ends of responses that wait until their charges are on disk. Listener thread.
 *
 * The main thread is asked once for all that are held, and again when it has answered and more have come: so while it
 * waits for the disk the next group gathers. Charges reach the disk in the order of the journal, and so the ends are let go.
 */
import type { Clock } from '../core/clock.js';
import { COMMIT_WAIT_MS_MAX } from '../core/limits.js';
import type { JournalWriter } from '../ledger/journal.js';

/** One of the two is called, once. */
export interface PendingCommit {
  onCommitted(): void;
  /** The store fails, or is too slow: the charge is not known to be on disk. */
  onUncommitted(): void;
}

interface Held {
  readonly position: number;
  readonly sinceMs: number;
  readonly end: PendingCommit;
}

export class PendingCommits {
  readonly #journal: JournalWriter;
  readonly #clock: Clock;
  readonly #askCommit: () => void;
  #held: Held[] = [];
  #asked = false;

  /** `askCommit` is to be answered by `onCommit`. */
  constructor(journal: JournalWriter, clock: Clock, askCommit: () => void) {
    this.#journal = journal;
    this.#clock = clock;
    this.#askCommit = askCommit;
  }

  get size(): number {
    return this.#held.length;
  }

  /** Holds `end` until the record at `position` of the journal is on disk. */
  hold(position: number, end: PendingCommit): void {
    this.#held.push({ position, sinceMs: this.#clock.monotonicMs(), end });
    if (this.#asked) return;
    this.#asked = true;
    // One message for all the ends of this turn.
    setImmediate(this.#askCommit);
  }

  /** The main thread has answered; `ok` is false where the store fails, and then nothing is held any longer. */
  onCommit(ok: boolean): void {
    this.#asked = false;
    this.#letGo();
    if (!ok) this.#giveUp(this.#held.length);
    if (this.#held.length === 0) return;
    this.#asked = true;
    this.#askCommit();
  }

  /** To be called about once a second: gives up what has been held for too long. */
  onSweep(): void {
    this.#letGo();
    const oldestMs = this.#clock.monotonicMs() - COMMIT_WAIT_MS_MAX;
    const young = this.#held.findIndex(({ sinceMs }) => sinceMs > oldestMs);
    this.#giveUp(young < 0 ? this.#held.length : young);
  }

  #letGo(): void {
    const waiting = this.#held.findIndex(({ position }) => !this.#journal.isCommitted(position));
    const committed = this.#held.splice(0, waiting < 0 ? this.#held.length : waiting);
    for (const { end } of committed) end.onCommitted();
  }

  #giveUp(count: number): void {
    for (const { end } of this.#held.splice(0, count)) end.onUncommitted();
  }
}
