/**
 * What an operator's request needs of all gateways of a supervisor before it is answered: that they serve by a change, and that their
 * charges are on disk. Main thread.
 */
import { invariant } from '../core/errors.js';
import type { CallsUse } from '../sharing/sharing-stats.js';
import { identityOf } from '../store/process-identity.js';
import type { GroupSnapshot, SnapshotKind } from './snapshots.js';

/** For all gateways to have taken a change over; one that stands still for so long is named in the response. */
const CONFIRM_MS_MAX = 1_500;
/** Asked again where a gateway looked before the change was there. */
const CONFIRM_TRIES_MAX = 3;

/** Flushes that readers ask for are so far apart: those who ask meanwhile share the next, so consoles that poll cost a few a second. */
const FLUSH_PERIOD_MS = 50;

export interface GroupErrandsOptions {
  /** Asks the supervisor; undefined where this gateway is alone. */
  readonly readAll:
    ((what: SnapshotKind, accounts?: readonly string[]) => Promise<GroupSnapshot>) | undefined;
  /** Writes what this gateway has settled; false where it cannot be written now. */
  readonly flush: () => boolean;
  /** What is read of the store from now on is as new as what the others have written. */
  readonly refresh: () => void;
}

export class GroupErrands {
  readonly #options: GroupErrandsOptions;
  #flushedMs = -Infinity;
  #next: Promise<boolean> | undefined;

  constructor(options: GroupErrandsOptions) {
    this.#options = options;
  }

  /** Resolves when every gateway serves by that change of the registry, with how many of them do not after a bounded wait. */
  async confirm(change: number): Promise<number> {
    const { readAll } = this.#options;
    if (readAll === undefined) return 0;
    const endMs = performance.now() + CONFIRM_MS_MAX;
    for (let tries = 1; ; tries += 1) {
      const { members } = await readAll('changes');
      const behind = members.filter(({ reading: snapshot }) => (snapshot.changes ?? 0) < change).length;
      // Where the supervisor did not answer nobody knows.
      if (members.length === 0 && performance.now() > endMs) return 1;
      if (behind === 0 || tries >= CONFIRM_TRIES_MAX || performance.now() > endMs) return behind;
    }
  }

  /** Resolves when what any gateway had settled before is in the store; false where some could not be written now. */
  flushAll(): Promise<boolean> {
    return (this.#next ??= this.#flushNext());
  }

  /** What calls use of these accounts now, at each gateway. */
  async callsUses(accounts: readonly string[]): Promise<CallsUse[]> {
    const all = await this.#options.readAll?.('calls', accounts);
    return all?.members.flatMap(({ reading: { calls = [] } }) => calls) ?? [];
  }

  async #flushNext(): Promise<boolean> {
    const waitMs = Math.max(0, this.#flushedMs + FLUSH_PERIOD_MS - performance.now());
    await new Promise<void>((resolve) => setTimeout(resolve, waitMs));
    // Whoever asks from here on may be about a later call.
    this.#next = undefined;
    this.#flushedMs = performance.now();
    const { readAll, flush, refresh } = this.#options;
    if (readAll === undefined) return flush();
    const { members } = await readAll('books');
    refresh();
    return members.length > 0 && members.every(({ reading: snapshot }) => snapshot.books === true);
  }
}

/*
 * One commit for all listeners that ask in the same turn of the event loop, and for all that ask while it is being made. Main
 * thread.
 */

export class GroupCommit {
  readonly #commit: () => boolean;
  readonly #onCommit: (listenerIndex: number, ok: boolean) => void;
  /** Listeners whose answers wait for the disk. */
  readonly #asked = new Set<number>();

  /** `commit` is synchronous; `onCommit` tells each that asked whether it could be made. */
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

/* What the gateways of one supervisor are known by, to the store that they share. Supervisor process. */

/** Of this process's group: no other supervisor of this host ever has the same. */
export function ownGroupId(): string {
  const id = identityOf(process.pid);
  invariant(id !== undefined, '/proc tells who this process is');
  return id;
}
