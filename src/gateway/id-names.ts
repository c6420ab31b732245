/**
 * Ids of accounts and keys by their slots, cached in memory so that a line of a log needs no read of the
 * store. The logs of calls, the top-accounts counter and the leases use it, on the main thread.
 *
 * Must hold: a slot is looked up anew every hour, because a day after its key was deleted another key may get
 * it (test/unit/gateway/id-names.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, KeyIndex } from '../core/units.js';

/** How many ids of each kind are cached. A gateway with more in use reads them from the store again. */
const IDS_MAX = 100_000;
/** The cache is emptied this often: well before a deleted key's slot may be given to another key. */
const KEPT_MS = 3_600_000;

export interface IdSource {
  /** May throw what the store throws, as may `findKeyId`. */
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

  /** Returns null if there is none or it cannot be read: a line of a log is not worth an exception. */
  accountIdOf(account: AccountIndex): string | null {
    return this.#idOf(this.#accounts, account, () => this.#source.findAccountId(account));
  }

  /** Returns the id of the key that has the slot or had it last; null as above. */
  keyIdOf(key: KeyIndex): string | null {
    return this.#idOf(this.#keys, key, () => this.#source.findKeyId(key));
  }

  /**
   * Empties the cache if it is old. To be called each time calls are taken out of the listeners' rings: if
   * each lookup of an id read the clock instead, there would be several reads for a call.
   */
  forgetOld(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#sinceMs < KEPT_MS) return;
    this.#sinceMs = nowMs;
    this.#accounts.clear();
    this.#keys.clear();
  }

  #idOf<Index>(ids: Map<Index, string>, index: Index, find: () => string | undefined): string | null {
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
}
