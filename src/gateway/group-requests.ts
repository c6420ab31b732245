/**
 * Flushes and confirmations that somebody waits for, between the flushes of the timer. GroupCommit serves
 * listeners: their responses end only once the charges are on disk. FlushRequests serves operators who want
 * all charges on disk. GroupRequests serves operators whose change every gateway of the supervisor must have
 * applied. accounting.ts, shared-accounting.ts and listeners.ts create them, on the main thread. A _group_ is
 * a process group here.
 *
 * Must hold: a request that comes while a flush runs gets the next flush, because its call may have been
 * settled too late for the running flush. Further tests: test/e2e/books.test.ts (commits),
 * test/e2e/processes.test.ts (GroupRequests).
 */
import type { CallsUse } from '../sharing/sharing-stats.js';
import type { GroupSnapshot, SnapshotKind } from './messages.js';

/** How long all gateways may take to apply a change. The operator's reply says how many have not done so. */
const CONFIRM_MS_MAX = 1_500;
/**
 * How often a gateway is asked, because it may have looked for changes just before this change was written.
 */
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

  /**
   * `commit` is synchronous and returns whether it succeeded. `onCommit` is called for each that has asked.
   */
  constructor(commit: () => boolean, onCommit: (listenerIndex: number, ok: boolean) => void) {
    this.#commit = commit;
    this.#onCommit = onCommit;
  }

  /** Commits at the end of this event-loop turn. */
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

/** Joins operators' requests for a flush, so that there is at most one flush in FLUSH_PERIOD_MS. */
export class FlushRequests {
  readonly #flush: () => boolean | Promise<boolean>;
  #flushedMs = -Infinity;
  #nextFlush: Promise<boolean> | undefined;

  /** `flush` returns false if something cannot be written now. */
  constructor(flush: () => boolean | Promise<boolean>) {
    this.#flush = flush;
  }

  /** Resolves when all calls settled so far are in the store, or with false if some could not be written. */
  flushAll(): Promise<boolean> {
    return (this.#nextFlush ??= this.#flushNext());
  }

  async #flushNext(): Promise<boolean> {
    const waitMs = Math.max(0, this.#flushedMs + FLUSH_PERIOD_MS - performance.now());
    await new Promise<void>((resolve) => setTimeout(resolve, waitMs));
    // A later caller may mean a call that settles after this flush, so it gets the next flush.
    this.#nextFlush = undefined;
    this.#flushedMs = performance.now();
    return this.#flush();
  }
}

/** Asks all gateways of the supervisor. Each method resolves within seconds, also if some do not reply. */
export class GroupRequests {
  readonly #readAll: (kind: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>;
  readonly #refresh: () => void;

  /**
   * `readAll` asks all gateways, through the supervisor. `refresh` makes later reads of the store see what
   * the other gateways have written.
   */
  constructor(
    readAll: (kind: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>,
    refresh: () => void,
  ) {
    this.#readAll = readAll;
    this.#refresh = refresh;
  }

  /**
   * Waits until every gateway has applied that change of the registry, for a bounded time. Resolves with the
   * number of gateways that have not.
   */
  async confirm(change: number): Promise<number> {
    const endMs = performance.now() + CONFIRM_MS_MAX;
    for (let tries = 1; ; tries += 1) {
      const { members } = await this.#readAll('changes');
      const behind = members.filter(({ reading: snapshot }) => (snapshot.changes ?? 0) < change).length;
      // Without members before that time no gateway serves yet, so none is behind. After that time the
      // supervisor has not replied (supervisor-link.ts waits longer): then nothing is known, which counts as
      // one gateway behind.
      if (members.length === 0 && performance.now() > endMs) return 1;
      if (behind === 0 || tries >= CONFIRM_TRIES_MAX || performance.now() > endMs) return behind;
    }
  }

  /** Flushes every gateway. Resolves with false if one of them could not write or did not reply. */
  async flush(): Promise<boolean> {
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
