/**
 * The names in a block that is being filled. Each name is written once, and calls refer to its position.
 * block-builder.ts uses both classes. Main thread of a gateway process.
 *
 * Must hold (test/unit/call-log/call-log.test.ts, test/unit/call-log/plain-calls.test.ts):
 * - A name has one position in its block, and at most NAME_CHARS_MAX characters.
 * - SlotPositions are cleared for each block, because positions are the block's own, and whenever slots may
 *   have new names (`forgetSlots` of block-builder.ts).
 */
import { invariant } from '../core/errors.js';
import type { AccountIndex, GroupIndex, KeyIndex } from '../core/units.js';
import { BLOCK_BYTES, NONE } from './call-block.js';

/**
 * A longer name is cut, so that no block exceeds BLOCK_BYTES_MAX, beyond which readers take it for damaged.
 * The last call of a block may add some 230 names, of which a character takes up to 6 bytes in JSON. No name
 * is as long: the longest is a host of 253 characters with its port.
 */
const NAME_CHARS_MAX = 300;
/** The quotes and the comma of the JSON array. */
const BYTES_BESIDE_NAME = 3;
/** Names of the last call, which may make its block exceed BLOCK_BYTES: see NAME_CHARS_MAX. */
const NAMES_OF_CALL_MAX = 300;
invariant(BLOCK_BYTES / BYTES_BESIDE_NAME + NAMES_OF_CALL_MAX < NONE, 'a position is never NONE');

export class BlockNames {
  readonly #positions = new Map<string, number>();
  #bytes = 0;

  /** How many bytes the names take in the block. Each character counts as one byte, as if it were ASCII. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Returns the names in the order of their positions. */
  list(): string[] {
    return [...this.#positions.keys()];
  }

  /** Call it for each new block. */
  clear(): void {
    this.#positions.clear();
    this.#bytes = 0;
  }

  /** Returns the position of a name, which is added if the block lacks it; NONE for null. */
  positionOf(name: string | null): number {
    if (name === null) return NONE;
    const listed = this.#positions.get(name);
    if (listed !== undefined) return listed;
    if (name.length > NAME_CHARS_MAX) return this.positionOf(name.slice(0, NAME_CHARS_MAX));
    const position = this.#positions.size;
    this.#bytes += name.length + BYTES_BESIDE_NAME;
    this.#positions.set(name, position);
    return position;
  }
}

/** Looks up names by the slots and indexes of a plain call; null if a slot has no name any more. */
export interface SlotNames {
  readonly requestPrefixOf: (listener: number) => string;
  readonly accountIdOf: (account: AccountIndex) => string | null;
  readonly keyIdOf: (key: KeyIndex) => string | null;
  readonly modelIdOf: (model: number) => string;
  readonly upstreamNameOf: (upstream: number) => string | null;
  readonly groupNameOf: (group: GroupIndex) => string;
  readonly sourceOf: (source: number) => string;
}

/** How many slots are cached, a power of two. A block has some 500 calls, mostly of fewer accounts. */
const CACHED_SLOTS = 1_024;
/** Marks an unused entry of the cache. A slot may be -1 too: its position is looked up each time. */
const NO_SLOT = -1;

/**
 * A direct-mapped cache from a slot to the position of the slot's name: slots that are equal modulo
 * CACHED_SLOTS replace each other. Each plain call looks into eight such caches.
 */
export class SlotPositions {
  readonly #slots = new Int32Array(CACHED_SLOTS).fill(NO_SLOT);
  readonly #positions = new Int32Array(CACHED_SLOTS);
  readonly #positionOf: (slot: number) => number;

  /** `positionOf` looks up what is not cached. */
  constructor(positionOf: (slot: number) => number) {
    this.#positionOf = positionOf;
  }

  /** Returns the position of the slot's name; NONE if the slot has none. */
  positionOfSlot(slot: number): number {
    const entry = slot & (CACHED_SLOTS - 1);
    if (this.#slots[entry] === slot && slot !== NO_SLOT) return this.#positions[entry]!;
    const position = this.#positionOf(slot);
    this.#slots[entry] = slot;
    this.#positions[entry] = position;
    return position;
  }

  clear(): void {
    this.#slots.fill(NO_SLOT);
  }
}
