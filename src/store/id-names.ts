/**
 * Identifiers of accounts and keys by their slots, for the logs: kept in memory, so that a busy gateway does not look each up
 * for each line. Main thread of a gateway process.
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, KeyIndex } from '../core/units.js';

/** Identifiers of each kind that are remembered; a gateway with more in use looks them up again. */
const IDS_MAX = 100_000;
/** A key's slot rests for a day after its key was deleted, so what is known of it is forgotten before. */
const KEPT_MS = 3_600_000;

export interface IdSource {
  /** May throw what a store throws. */
  findAccountId(account: AccountIndex): string | undefined;
  findKeyId(key: KeyIndex): string | undefined;
}

export class IdNames {
  readonly #source: IdSource;
  readonly #clock: Clock;
  readonly #accounts = new Map<AccountIndex, string>();
  readonly #keys = new Map<KeyIndex, string>();
  #sinceMs: number;

  constructor(source: IdSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
    this.#sinceMs = clock.monotonicMs();
  }

  /** Null where it cannot be read: a line of a log is not worth an exception. */
  accountIdOf(account: AccountIndex): string | null {
    return this.#idOf(this.#accounts, account, () => this.#source.findAccountId(account));
  }

  /** The same of a key: who has the slot, or had it last. */
  keyIdOf(key: KeyIndex): string | null {
    return this.#idOf(this.#keys, key, () => this.#source.findKeyId(key));
  }

  #idOf<Index>(ids: Map<Index, string>, index: Index, find: () => string | undefined): string | null {
    this.#forgetOld();
    const known = ids.get(index);
    if (known !== undefined) return known;
    try {
      const id = find();
      if (id === undefined) return null;
      if (ids.size >= IDS_MAX) ids.clear();
      ids.set(index, id);
      return id;
    } catch {
      return null;
    }
  }

  #forgetOld(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sinceMs < KEPT_MS) return;
    this.#sinceMs = nowMs;
    this.#accounts.clear();
    this.#keys.clear();
  }
}
