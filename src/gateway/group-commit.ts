/**
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
