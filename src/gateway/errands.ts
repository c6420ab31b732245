/**
 * What is done between two flushes of the timer because somebody waits for it: a listener whose responses
 * must be on disk first (GroupCommit), an operator who wants all charges on disk (FlushRequests), or an
 * operator's change that every gateway of the supervisor must serve by (GroupErrands). Main thread.
 */
import type { CallsUse } from '../sharing/sharing-stats.js';
import type { GroupSnapshot, SnapshotKind } from './messages.js';

/**
 * For all gateways to have taken a change over; one that stands still for so long is named in the response.
 */
const CONFIRM_MS_MAX = 1_500;
/** A gateway that looked before the change was there is asked again. */
const CONFIRM_TRIES_MAX = 3;

/**
 * At least so long between two flushes that operators ask for. Who asks meanwhile shares the next: consoles
 * that poll cost a few a second.
 */
const FLUSH_PERIOD_MS = 50;

/**
 * Makes one commit for all listeners that ask in the same turn of the event loop, and for all that ask while
 * it is being made.
 */
export class GroupCommit {
  readonly #commit: () => boolean;
  readonly #onCommit: (listenerIndex: number, ok: boolean) => void;
  /** Listeners whose responses wait for the disk. */
  readonly #asked = new Set<number>();

  /** `commit` is synchronous; `onCommit` tells each listener that asked whether it could be made. */
  constructor(commit: () => boolean, onCommit: (listenerIndex: number, ok: boolean) => void) {
    this.#commit = commit;
    this.#onCommit = onCommit;
  }

  ask(listenerIndex: number): void {
    this.#asked.add(listenerIndex);
    if (this.#asked.size > 1) return;
    setImmediate(() => {
      const asked = [...this.#asked];
      this.#asked.clear();
      const ok = this.#commit();
      for (const index of asked) this.#onCommit(index, ok);
    });
  }
}

export class FlushRequests {
  readonly #flush: () => boolean | Promise<boolean>;
  #flushedMs = -Infinity;
  #next: Promise<boolean> | undefined;

  /** `flush` returns false if something cannot be written now. */
  constructor(flush: () => boolean | Promise<boolean>) {
    this.#flush = flush;
  }

  /** Resolves when what was settled before is in the store; with false if some could not be written now. */
  flushAll(): Promise<boolean> {
    return (this.#next ??= this.#flushNext());
  }

  async #flushNext(): Promise<boolean> {
    const waitMs = Math.max(0, this.#flushedMs + FLUSH_PERIOD_MS - performance.now());
    await new Promise<void>((resolve) => setTimeout(resolve, waitMs));
    // Who asks from here on may ask about a later call.
    this.#next = undefined;
    this.#flushedMs = performance.now();
    return this.#flush();
  }
}

export class GroupErrands {
  readonly #readAll: (what: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>;
  readonly #refresh: () => void;

  /**
   * `readAll` asks the supervisor. After `refresh`, what is read of the store is as new as what the others
   * have written.
   */
  constructor(
    readAll: (what: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>,
    refresh: () => void,
  ) {
    this.#readAll = readAll;
    this.#refresh = refresh;
  }

  /**
   * Resolves when every gateway serves by that change of the registry, or after a bounded wait; with how many
   * do not.
   */
  async confirm(change: number): Promise<number> {
    const endMs = performance.now() + CONFIRM_MS_MAX;
    for (let tries = 1; ; tries += 1) {
      const { members } = await this.#readAll('changes');
      const behind = members.filter(({ reading: snapshot }) => (snapshot.changes ?? 0) < change).length;
      // If the supervisor did not answer, nobody knows.
      if (members.length === 0 && performance.now() > endMs) return 1;
      if (behind === 0 || tries >= CONFIRM_TRIES_MAX || performance.now() > endMs) return behind;
    }
  }

  /** Flushes every gateway; false if one of them could not write, or did not answer. */
  async flush(): Promise<boolean> {
    const { members } = await this.#readAll('books');
    this.#refresh();
    return members.length > 0 && members.every(({ reading: snapshot }) => snapshot.books === true);
  }

  /** What calls use of these accounts now, at each gateway. */
  async callsUses(accounts: readonly string[]): Promise<CallsUse[]> {
    const { members } = await this.#readAll('calls', accounts);
    return members.flatMap(({ reading: { calls = [] } }) => calls);
  }
}
