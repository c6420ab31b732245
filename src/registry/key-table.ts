/**
 * The key table: finds a key by its digest and tells its account and state. It lies in shared buffers, so a
 * million keys cost one copy, not one for each thread. live-buffers.ts, registry-context.ts and
 * change-applier.ts write it on the main thread; request/authenticate.ts and request/call-contents.ts read it
 * on listener threads. Nobody locks.
 *
 * A key has an index (the slot of a key in docs/glossary.md), and a record of 48 bytes at that index of
 * `records`. The buffer `entries` is a hash table with open addressing. The number of its 32-bit entries is a
 * power of two, and at least twice `keysMax`. An entry is 0 (empty), or the index of a key plus one. Where an
 * entry is in `entries` is its position. With 8 to 16 bytes of entries a key takes at most 64 bytes.
 *
 *     byte  bits  field     written by the main thread
 *        0  8×32  digest    before an entry names the key
 *       32    32  account   before an entry names the key
 *       36    32  state     at any time: vacant, active or disabled, and the flags limited and private
 *       40    32  expires   at any time: Unix seconds from which on the key is rejected, 0 for never
 *
 *                 field     written by any thread
 *       44    32  used      Unix seconds of the last use, 0 for none; written about once a second, so
 *                           that threads seldom write to the cache line of a busy key
 *
 * The home of a key is the position that the first word of its digest gives. A search begins there, goes on
 * from position to position, and ends at an empty entry. No stronger hash is needed: digests are SHA-256 and
 * keys are made here, so nobody can choose where keys collide.
 *
 * A removal closes its gap: an entry after the gap moves into the gap, unless the home of its key lies
 * after the gap too. No entry stays marked as removed. So the search for an unknown key stays short, however
 * many keys have come and gone.
 *
 * The order of writes: an entry is published after its record is whole. To move a key, the main thread writes
 * the new entry, counts `moves` up, and then overwrites the old entry. So a search that found nothing is
 * right if `moves` did not change during the search. Otherwise `find` searches again.
 *
 * Must hold: a reader between any two writes sees all of a key or nothing of the key. A search finds a key
 * that was in the table all the time. The main thread alone inserts, removes and writes states, so it may
 * load a state and store the changed state. Further test: test/threads/key-table-race.test.ts.
 */
import { invariant } from '../core/errors.js';
import { KEYS_MAX } from '../core/limits.js';
import { asAccountIndex, asKeyIndex, type AccountIndex, type KeyIndex } from '../core/units.js';
import { DIGEST_BYTES } from './key-digest.js';

const DIGEST_WORDS = DIGEST_BYTES / 4;
const ACCOUNT = DIGEST_WORDS;
const STATE = DIGEST_WORDS + 1;
const EXPIRES = DIGEST_WORDS + 2;
const USED = DIGEST_WORDS + 3;
const RECORD_WORDS = DIGEST_WORDS + 4;

const STATE_VACANT = 0;
const STATE_ACTIVE = 1;
const STATE_DISABLED = 2;
const STATE_MASK = 3;
/** A bit of the state: the key has limits of its own. */
const LIMITED = 4;
/** A bit of the state: no contents of the key's calls are kept. */
const PRIVATE = 8;

const NEVER = 0; // in `expires`
const NOT_USED = 0; // in `used`
/** In the year 2106. key-record.ts rejects a later expiry. The words are signed, so readers apply `>>> 0`. */
export const KEY_EXPIRES_SECONDS_MAX = 2 ** 32 - 1;

const ENTRY_EMPTY = 0;
const ENTRY_FIRST_KEY = 1;

/**
 * Bounds the searches of one `find`. A search takes some microseconds, and is repeated only if a key has
 * moved meanwhile. If this happens so often in a row, it is a bug: `find` throws.
 */
const SEARCHES_MAX = 10_000;

export type KeyState = 'active' | 'disabled';

interface KeyTraits {
  /** Unix seconds from which on the key is rejected, 1 to KEY_EXPIRES_SECONDS_MAX; undefined for never. */
  readonly expiresSeconds?: number | undefined;
  /** Whether the ledger has limits of this key (ledger/limited-scopes.ts). */
  readonly isLimited?: boolean;
  /** Whether no contents of its calls may be kept. */
  readonly isPrivate?: boolean;
}

/** gateway/accounting-base.ts makes the buffers once; threads get them in their `workerData`. */
export interface KeyTableBuffers {
  readonly keysMax: number;
  /** The hash table: each entry names a key or is empty. */
  readonly entries: SharedArrayBuffer;
  readonly records: SharedArrayBuffer;
  /** One word: how often a key has moved. */
  readonly moves: SharedArrayBuffer;
}

export function createKeyTableBuffers(capacity: { readonly keysMax: number }): KeyTableBuffers {
  const { keysMax } = capacity;
  invariant(keysMax >= 1 && keysMax <= KEYS_MAX, `keysMax within 1..${KEYS_MAX}`);
  const entryCount = 2 ** Math.ceil(Math.log2(2 * keysMax));
  return {
    keysMax,
    entries: new SharedArrayBuffer(entryCount * 4),
    records: new SharedArrayBuffer(keysMax * RECORD_WORDS * 4),
    moves: new SharedArrayBuffer(4),
  };
}

export class KeyTable {
  readonly #keysMax: number;
  readonly #entries: Int32Array;
  readonly #records: Int32Array;
  readonly #moves: Int32Array;
  readonly #positionMask: number;

  constructor(buffers: KeyTableBuffers) {
    this.#keysMax = buffers.keysMax;
    this.#entries = new Int32Array(buffers.entries);
    this.#records = new Int32Array(buffers.records);
    this.#moves = new Int32Array(buffers.moves);
    this.#positionMask = this.#entries.length - 1;
  }

  /**
   * Returns the key with this digest of 32 bytes, all of which are compared. Returns undefined if no key has
   * the digest. Any thread.
   */
  find(digest: Buffer): KeyIndex | undefined {
    for (let searches = 0; searches < SEARCHES_MAX; searches++) {
      const moves = Atomics.load(this.#moves, 0);
      const key = this.#search(digest);
      if (key !== undefined || Atomics.load(this.#moves, 0) === moves) return key;
    }
    throw new Error(`invariant broken: a key moved during each of ${SEARCHES_MAX} searches`);
  }

  /** `key`: an index that `find` returned. The key may have been removed since. Any thread. */
  accountOf(key: KeyIndex): AccountIndex {
    return asAccountIndex(Atomics.load(this.#records, key * RECORD_WORDS + ACCOUNT));
  }

  /** A key that was removed since it was found is disabled. Any thread. */
  stateOf(key: KeyIndex): KeyState {
    const state = Atomics.load(this.#records, stateAt(key));
    return (state & STATE_MASK) === STATE_ACTIVE ? 'active' : 'disabled';
  }

  /**
   * Whether the key has limits of its own. False for a key that was removed since it was found. If its call
   * had passed `stateOf` before, the call counts for no limit of the key. Any thread.
   */
  isLimited(key: KeyIndex): boolean {
    return (Atomics.load(this.#records, stateAt(key)) & LIMITED) !== 0;
  }

  /** A key that was removed since it was found counts as private. Any thread. */
  isPrivate(key: KeyIndex): boolean {
    const state = Atomics.load(this.#records, stateAt(key));
    return state === STATE_VACANT || (state & PRIVATE) !== 0;
  }

  /** Whether the key is expired by `nowSeconds`, Unix seconds. Any thread. */
  isExpired(key: KeyIndex, nowSeconds: number): boolean {
    const expiresSeconds = Atomics.load(this.#records, key * RECORD_WORDS + EXPIRES) >>> 0;
    return expiresSeconds !== NEVER && expiresSeconds <= nowSeconds;
  }

  /**
   * Records a use. Returns true if the last use was in another second: then the caller marks the key dirty.
   * Two threads that record a use at once may both get true. Any thread.
   */
  recordUse(key: KeyIndex, nowSeconds: number): boolean {
    const usedWord = key * RECORD_WORDS + USED;
    if (Atomics.load(this.#records, usedWord) >>> 0 === nowSeconds) return false;
    Atomics.store(this.#records, usedWord, nowSeconds);
    return true;
  }

  /** Unix seconds; undefined if the key was never used. Any thread. */
  lastUsedSecondsOf(key: KeyIndex): number | undefined {
    const usedSeconds = Atomics.load(this.#records, key * RECORD_WORDS + USED) >>> 0;
    return usedSeconds === NOT_USED ? undefined : usedSeconds;
  }

  /** Whether a key has this index, which may be beyond the table, as in rows of the store. Any thread. */
  has(key: KeyIndex): boolean {
    return key < this.#keysMax && Atomics.load(this.#records, stateAt(key)) !== STATE_VACANT;
  }

  /**
   * Adds a key. Its index must be vacant, and its digest must not be in the table. The ledger must have the
   * limits of a limited key already. Main thread.
   *
   * An index must rest for a second or more after a removal, because a request that found the former key may
   * still ask for its account. keys.ts lets the index rest for a day (SlotRest).
   */
  insert(
    key: KeyIndex,
    digest: Buffer,
    account: AccountIndex,
    active: boolean,
    traits: KeyTraits = {},
  ): void {
    invariant(key >= 0 && key < this.#keysMax, `key ${key} is within the table`);
    invariant(digest.length === DIGEST_BYTES, 'a digest has 32 bytes');
    const record = key * RECORD_WORDS;
    invariant(!this.has(key), `key ${key} is vacant`);
    invariant(this.#search(digest) === undefined, 'a digest is in the table once');
    const position = this.#positionOf(ENTRY_EMPTY, digest.readInt32LE(0));
    for (let word = 0; word < DIGEST_WORDS; word++) {
      Atomics.store(this.#records, record + word, digest.readInt32LE(word * 4));
    }
    Atomics.store(this.#records, record + ACCOUNT, account);
    if (traits.expiresSeconds === undefined) Atomics.store(this.#records, record + EXPIRES, NEVER);
    else this.#storeExpiry(key, traits.expiresSeconds);
    Atomics.store(this.#records, record + USED, NOT_USED);
    const flags = (traits.isLimited === true ? LIMITED : 0) | (traits.isPrivate === true ? PRIVATE : 0);
    Atomics.store(this.#records, record + STATE, (active ? STATE_ACTIVE : STATE_DISABLED) | flags);
    Atomics.store(this.#entries, position, key + ENTRY_FIRST_KEY);
  }

  /** Takes effect on every thread with the next request. Main thread. */
  setActive(key: KeyIndex, active: boolean): void {
    this.#changeState(key, STATE_MASK, active ? STATE_ACTIVE : STATE_DISABLED);
  }

  /** Takes effect on every thread, also for calls in flight (call-contents.ts). Main thread. */
  setPrivate(key: KeyIndex, isPrivate: boolean): void {
    this.#changeState(key, PRIVATE, isPrivate ? PRIVATE : 0);
  }

  /** Call after the ledger has the limits. The flag stays until the key is removed. Main thread. */
  setLimited(key: KeyIndex): void {
    this.#changeState(key, LIMITED, LIMITED);
  }

  /**
   * `expiresSeconds`: 1 to KEY_EXPIRES_SECONDS_MAX. An expiry can be changed, but no operation takes it away.
   * Takes effect on every thread with the next request. Main thread.
   */
  setExpiry(key: KeyIndex, expiresSeconds: number): void {
    invariant(this.has(key), `key ${key} is in the table`);
    this.#storeExpiry(key, expiresSeconds);
  }

  /**
   * Removes a key; its index is then vacant. Its account, digest and expiry stay in the record, because a
   * request may have found the key just before. Main thread.
   */
  remove(key: KeyIndex): void {
    const state = this.#presentStateAt(key);
    let gap = this.#positionOf(key + ENTRY_FIRST_KEY, Atomics.load(this.#records, key * RECORD_WORDS));
    Atomics.store(this.#records, state, STATE_VACANT);
    let position = gap;
    for (let steps = 0; steps <= this.#positionMask; steps++) {
      position = (position + 1) & this.#positionMask;
      const entry = Atomics.load(this.#entries, position);
      if (entry === ENTRY_EMPTY) break;
      const home = Atomics.load(this.#records, (entry - ENTRY_FIRST_KEY) * RECORD_WORDS);
      // A key whose home lies after the gap stays where it is: its searches begin after the gap, so they
      // would not find it in the gap. `home` is not masked yet; the masked difference is the same.
      if (((position - home) & this.#positionMask) < ((position - gap) & this.#positionMask)) continue;
      Atomics.store(this.#entries, gap, entry);
      Atomics.add(this.#moves, 0, 1);
      gap = position;
    }
    Atomics.store(this.#entries, gap, ENTRY_EMPTY);
  }

  /** Replaces the bits of `mask` in the key's state by `bits`. Only the main thread writes states. */
  #changeState(key: KeyIndex, mask: number, bits: number): void {
    const state = this.#presentStateAt(key);
    Atomics.store(this.#records, state, (Atomics.load(this.#records, state) & ~mask) | bits);
  }

  /** Stores no 0, which would mean never, and nothing that the word cannot hold. */
  #storeExpiry(key: KeyIndex, expiresSeconds: number): void {
    const fits = expiresSeconds >= 1 && expiresSeconds <= KEY_EXPIRES_SECONDS_MAX;
    invariant(fits, `expiry ${expiresSeconds} within 1..${KEY_EXPIRES_SECONDS_MAX}`);
    Atomics.store(this.#records, key * RECORD_WORDS + EXPIRES, expiresSeconds);
  }

  /** Returns where the key's state is in `records`. Throws if the key is not in the table. */
  #presentStateAt(key: KeyIndex): number {
    invariant(this.has(key), `key ${key} is in the table`);
    return stateAt(key);
  }

  /** One search. Undefined also if the key moved meanwhile: `find` checks that. */
  #search(digest: Buffer): KeyIndex | undefined {
    let position = digest.readInt32LE(0) & this.#positionMask;
    for (let steps = 0; steps <= this.#positionMask; steps++) {
      const entry = Atomics.load(this.#entries, position);
      if (entry === ENTRY_EMPTY) return undefined;
      if (this.#hasDigest(entry - ENTRY_FIRST_KEY, digest)) return asKeyIndex(entry - ENTRY_FIRST_KEY);
      position = (position + 1) & this.#positionMask;
    }
    return undefined;
  }

  #hasDigest(key: number, digest: Buffer): boolean {
    const record = key * RECORD_WORDS;
    for (let word = 0; word < DIGEST_WORDS; word++) {
      if (Atomics.load(this.#records, record + word) !== digest.readInt32LE(word * 4)) return false;
    }
    return true;
  }

  /**
   * Returns the first position from `home` (not masked yet) on that has `entry`: the entry of a key, or
   * ENTRY_EMPTY to find a position for a new key.
   */
  #positionOf(entry: number, home: number): number {
    let position = home & this.#positionMask;
    for (let steps = 0; steps <= this.#positionMask; steps++) {
      if (Atomics.load(this.#entries, position) === entry) return position;
      position = (position + 1) & this.#positionMask;
    }
    // Not reached: a key of the table has an entry, and at least half of the entries are empty.
    throw new Error(`invariant broken: entry ${entry} is in the table`);
  }
}

function stateAt(key: KeyIndex): number {
  return key * RECORD_WORDS + STATE;
}
