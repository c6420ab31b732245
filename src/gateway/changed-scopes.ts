/**
 * The accounts and keys that flushes have written and no check of their quotas has read: those that changed,
 * and those that are to be checked once more. accounting-base.ts makes one ChangedScopes, store/flush.ts adds
 * to it, and quota-notices.ts takes out. Main thread of a gateway process.
 *
 * Must hold: what waits is bounded, and is taken out oldest first.
 */
import type { AccountIndex, KeyIndex } from '../core/units.js';

/**
 * How many accounts, and keys, may wait for a check, or to be checked again at one time: some 10 MB each
 * time, of which there are some 20. The others are checked when a flush has written them once more.
 */
const CHANGED_SCOPES_MAX = 100_000;
/** Scopes that are due within this time of each other are checked together. */
const MERGED_WITHIN_MS = 1_000;
/**
 * When scopes are checked again. Other hosts may take so long to report their use, because an idle lease is
 * reported after 16 s. One time for all reasons, so that `#later` stays in order.
 */
const CHECK_AGAIN_MS = 20_000;

export class ChangedScopes {
  /** Whether the settings want notices; otherwise nothing is added. */
  readonly #isWatched: () => boolean;
  readonly #accounts = new Set<AccountIndex>();
  readonly #keys = new Set<KeyIndex>();
  /** Scopes to be checked again, the earliest first. At most one entry for each MERGED_WITHIN_MS. */
  readonly #later: { readonly atMs: number; accounts: Set<AccountIndex>; keys: Set<KeyIndex> }[] = [];

  constructor(isWatched: () => boolean) {
    this.#isWatched = isWatched;
  }

  /** store/flush.ts calls it with what a flush has written. Drops what exceeds CHANGED_SCOPES_MAX. */
  add(accounts: Iterable<AccountIndex>, keys: Iterable<KeyIndex>): void {
    if (!this.#isWatched()) return;
    addUpTo(CHANGED_SCOPES_MAX, this.#accounts, accounts);
    addUpTo(CHANGED_SCOPES_MAX, this.#keys, keys);
  }

  /** Takes out at most `max` accounts and keys each, the oldest first. `nowMs` is monotonic. */
  take(max: number, nowMs: number): ScopeLists {
    while (this.#later[0] !== undefined && this.#later[0].atMs <= nowMs) {
      const { accounts, keys } = this.#later.shift()!;
      this.add(accounts, keys);
    }
    return { accounts: takeFrom(this.#accounts, max), keys: takeFrom(this.#keys, max) };
  }

  /** Adds the scopes again CHECK_AGAIN_MS after `nowMs`, which is monotonic and never goes back. */
  addAgain(scopes: ScopeLists, nowMs: number): void {
    const atMs = nowMs + CHECK_AGAIN_MS;
    let entry = this.#later.at(-1);
    if (entry === undefined || entry.atMs + MERGED_WITHIN_MS < atMs) {
      entry = { atMs, accounts: new Set(), keys: new Set() };
      this.#later.push(entry);
    }
    addUpTo(CHANGED_SCOPES_MAX, entry.accounts, scopes.accounts);
    addUpTo(CHANGED_SCOPES_MAX, entry.keys, scopes.keys);
  }
}

interface ScopeLists {
  readonly accounts: readonly AccountIndex[];
  readonly keys: readonly KeyIndex[];
}

function addUpTo<Index>(max: number, changed: Set<Index>, added: Iterable<Index>): void {
  for (const index of added) {
    if (changed.size >= max) return;
    changed.add(index);
  }
}

function takeFrom<Index>(changed: Set<Index>, max: number): Index[] {
  const taken: Index[] = [];
  for (const index of changed) {
    if (taken.length >= max) break;
    taken.push(index);
    changed.delete(index);
  }
  return taken;
}
