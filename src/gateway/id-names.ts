/**
 * Ids of accounts and keys by their slots, cached in memory so that a line of a log needs no read of the
 * store. accounting-base.ts makes one IdNames, for the logs of calls and all else on the main thread of a
 * gateway process.
 *
 * Must hold: each slot is looked up again every hour, because another key may get the slot of a deleted key
 * after a day (also test/unit/gateway/gateway-logs.test.ts).
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, KeyIndex } from '../core/units.js';

/** How many ids of each kind are cached. Beyond that the cache is emptied, and ids are read again. */
const IDS_MAX = 100_000;
const IDS_KEPT_MS = 3_600_000;

interface IdSource {
  /** Returns undefined if no account has the index. This and `findKeyId` throw what the store throws. */
  findAccountId(account: AccountIndex): string | undefined;
  findKeyId(key: KeyIndex): string | undefined;
}

export class IdNames {
  readonly #source: IdSource;
  readonly #clock: Clock;
  readonly #accounts = new Map<AccountIndex, string>();
  readonly #keys = new Map<KeyIndex, string>();
  /** When the cache was emptied; monotonic. */
  #emptiedMs: number;

  constructor(source: IdSource, clock: Clock) {
    this.#source = source;
    this.#clock = clock;
    this.#emptiedMs = clock.monotonicMs();
  }

  /** Returns null without an id, or if the store fails: a line of a log is not worth an exception. */
  accountIdOf(account: AccountIndex): string | null {
    return this.#idOf(this.#accounts, account, () => this.#source.findAccountId(account));
  }

  /** Returns the id of the key that has the slot or had it last; null as `accountIdOf` does. */
  keyIdOf(key: KeyIndex): string | null {
    return this.#idOf(this.#keys, key, () => this.#source.findKeyId(key));
  }

  /**
   * Empties the cache if it is older than IDS_KEPT_MS. gateway-logs.ts calls it at each drain of the call
   * rings. If each lookup looked at the age instead, every call would cost several reads of the clock.
   */
  forgetOld(): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#emptiedMs < IDS_KEPT_MS) return;
    this.#emptiedMs = nowMs;
    this.#accounts.clear();
    this.#keys.clear();
  }

  #idOf<Index>(ids: Map<Index, string>, index: Index, find: () => string | undefined): string | null {
    const cachedId = ids.get(index);
    if (cachedId !== undefined) return cachedId;
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
