/**
 * Flushes between those of the timer, and confirmations, for which a response or an operator waits. Main
 * thread of a gateway process.
 *
 *     GroupCommit     of listeners.ts, whose listeners end responses only once the charges are on disk
 *     FlushRequests   of accounting.ts or shared-accounting.ts, for operators who read the store
 *     GroupRequests   of shared-accounting.ts, for operators whose change all gateways must have applied
 *
 * GroupCommit is named after the _group commit_ of stores, GroupRequests after the _process group_.
 *
 * Must hold: a request that comes while a flush runs gets the next flush, because its call may have been
 * settled too late for the running flush. Further tests: test/e2e/books.test.ts (commits),
 * test/e2e/processes.test.ts (GroupRequests).
 */
import type { CallsUse } from '../sharing/sharing-stats.js';
import type { GroupSnapshot, SnapshotKind } from './messages.js';

/** `confirm` asks no more after this time. The operator's reply says how many gateways are behind. */
const CONFIRM_MS_MAX = 1_500;
/** `confirm` asks again, because a gateway may have read the store just before the change was written. */
const CONFIRM_TRIES_MAX = 3;

/**
 * The shortest time between two flushes for operators. Requests in between share the next flush, so consoles
 * that poll cost at most some flushes a second.
 */
const FLUSH_PERIOD_MS = 50;

/** Makes one commit for all listeners that ask in the same turn of the event loop. */
export class GroupCommit {
  readonly #commit: () => boolean;
  readonly #onCommit: (listenerIndex: number, ok: boolean) => void;
  /** Listeners that have pending commits. */
  readonly #waitingListeners = new Set<number>();

  /** `commit` is synchronous; returns whether it succeeded. `onCommit` is called once for each listener. */
  constructor(commit: () => boolean, onCommit: (listenerIndex: number, ok: boolean) => void) {
    this.#commit = commit;
    this.#onCommit = onCommit;
  }

  /** Commits at the end of this event-loop turn, which the first listener that asks schedules. */
  ask(listenerIndex: number): void {
    this.#waitingListeners.add(listenerIndex);
    if (this.#waitingListeners.size > 1) return;
    setImmediate(() => {
      const waiting = [...this.#waitingListeners];
      this.#waitingListeners.clear();
      const ok = this.#commit();
      for (const index of waiting) this.#onCommit(index, ok);
    });
  }
}

/** Lets operators' requests share flushes. At most one begins in each FLUSH_PERIOD_MS; they may overlap. */
export class FlushRequests {
  readonly #flush: () => boolean | Promise<boolean>;
  #lastFlushMs = -Infinity;
  #nextFlush: Promise<boolean> | undefined;

  /** `flush` returns false if something cannot be written now. If it throws, `flushAll` rejects. */
  constructor(flush: () => boolean | Promise<boolean>) {
    this.#flush = flush;
  }

  /** Resolves when all calls settled so far are in the store, or with false if some could not be written. */
  flushAll(): Promise<boolean> {
    return (this.#nextFlush ??= this.#flushNext());
  }

  async #flushNext(): Promise<boolean> {
    const waitMs = Math.max(0, this.#lastFlushMs + FLUSH_PERIOD_MS - performance.now());
    await new Promise<void>((resolve) => setTimeout(resolve, waitMs));
    // A later request may mean a call that settles after this flush, so it gets the next flush.
    this.#nextFlush = undefined;
    this.#lastFlushMs = performance.now();
    return this.#flush();
  }
}

/** Asks all gateways for a snapshot of that kind, through the supervisor. `accounts`: for `calls`. */
export type ReadAll = (kind: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>;

/** Asks all gateways of the process group. Each method resolves within seconds, even if some do not reply. */
export class GroupRequests {
  readonly #readAll: ReadAll;
  readonly #refresh: () => void;

  /** `refresh` makes later reads of the store see what the other gateways have written. */
  constructor(readAll: ReadAll, refresh: () => void) {
    this.#readAll = readAll;
    this.#refresh = refresh;
  }

  /**
   * Waits until every gateway has applied the registry's change of that number, for a bounded time. Resolves
   * with how many gateways are behind: they have not applied it.
   */
  async confirm(change: number): Promise<number> {
    const endMs = performance.now() + CONFIRM_MS_MAX;
    for (let tries = 1; ; tries += 1) {
      const { members } = await this.#readAll('changes');
      const behind = members.filter(({ reading: snapshot }) => (snapshot.changes ?? 0) < change).length;
      // No members before `endMs`: no gateway serves yet, so none is behind. No members after `endMs`: the
      // supervisor has not replied (supervisor-link.ts waits longer), which counts as one gateway behind.
      if (members.length === 0 && performance.now() > endMs) return 1;
      if (behind === 0 || tries >= CONFIRM_TRIES_MAX || performance.now() > endMs) return behind;
    }
  }

  /** Flushes every gateway. Resolves with false if one of them could not write or did not reply. */
  async flush(): Promise<boolean> {
    // Asked for this kind, a gateway flushes, and replies whether all is in the store.
    const { members } = await this.#readAll('books');
    this.#refresh();
    return members.length > 0 && members.every(({ reading: snapshot }) => snapshot.books === true);
  }

  /** Resolves with what calls use of these accounts now, at each gateway. */
  async callsUses(accounts: readonly string[]): Promise<CallsUse[]> {
    const { members } = await this.#readAll('calls', accounts);
    return members.flatMap(({ reading: { calls = [] } }) => calls);
  }
}
