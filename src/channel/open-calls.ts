/**
 * The ids of calls in flight, and the table of open calls that each side of the channel keeps.
 * listener-channel.ts and worker-channel.ts use it. Listener or upstream worker.
 *
 * A call id is the call's slot plus 2^20 times a generation that the listener counts up. So a late frame of
 * an earlier call in the same slot has another id, and is dropped. Workers may still have calls of a dead
 * listener, whose slots the next one has; so a listener begins at a random one of 2^32 generations. That
 * these calls have other ids is thus all but certain, and not proved.
 *
 * Must hold: a call id is never used again while a frame of the earlier call may be under way; else a caller
 * gets bytes of another's response. No test shows this across two listeners. One listener's ids:
 * test/unit/channel/open-calls.test.ts; ids in frames: test/unit/channel/link.test.ts.
 */
import { invariant } from '../core/errors.js';
import { asCallSlot, type CallSlot } from '../core/units.js';

/** Slot + generation × 2^20: a safe integer for 2^33 generations. The first after the last of them is 1. */
export type CallId = number;

/** By how much ids of one slot differ that are one generation apart. Slots are below it. */
const GENERATION_STEP = 2 ** 20;
/** The id of slot 0 in the last generation. */
const LAST_IDS = GENERATION_STEP * (2 ** 33 - 1);

/** The bitwise operator is exact here: it uses the low 32 bits of a safe integer. */
export function slotOfCall(id: CallId): CallSlot {
  return asCallSlot(id & (GENERATION_STEP - 1));
}

/**
 * The low 32 bits of the call's generation, as a signed word of shared memory. Two calls of a slot with the
 * same bits are at least 2^32 calls apart.
 */
export function generationOfCall(id: CallId): number {
  return (id / GENERATION_STEP) | 0;
}

/**
 * Items by call slot, for the slots `first` to `first + count - 1`: callers use no other slot, which is not
 * checked. Not a Map, whose former tables would keep ended calls in memory (core/slot-list.ts).
 */
export class OpenCalls<T> {
  readonly #first: number;
  readonly #items: (T | undefined)[];
  /** By slot: the id of its call, or of its last call. */
  readonly #ids: Float64Array;
  /** For `nextId`: the random generation, before the first call. A worker has one too, and never uses it. */
  readonly #firstId = GENERATION_STEP * Math.floor(Math.random() * 2 ** 32);
  #size = 0;

  constructor(first: number, count: number) {
    invariant(first + count <= GENERATION_STEP, 'a call id has room for every slot');
    this.#first = first;
    this.#items = new Array<undefined>(count).fill(undefined);
    this.#ids = new Float64Array(count);
  }

  get size(): number {
    return this.#size;
  }

  /** The id of the next call in a slot: none that the slot had in its last 2^32 calls. Listener only. */
  nextId(slot: CallSlot): CallId {
    const lastId = this.#ids[slot - this.#first]!;
    if (lastId >= LAST_IDS) return GENERATION_STEP + slot;
    return (lastId === 0 ? this.#firstId + slot : lastId) + GENERATION_STEP;
  }

  /** Undefined if the call has ended. */
  get(id: CallId): T | undefined {
    const local = slotOfCall(id) - this.#first;
    return this.#ids[local] === id ? this.#items[local] : undefined;
  }

  /** The open call in a slot. */
  at(slot: CallSlot): T | undefined {
    return this.#items[slot - this.#first];
  }

  /** Opens a call; the one before in its slot must have been removed. */
  add(id: CallId, item: T): void {
    const local = slotOfCall(id) - this.#first;
    invariant(this.#items[local] === undefined, 'a call slot carries one call');
    this.#ids[local] = id;
    this.#items[local] = item;
    this.#size++;
  }

  /** Does nothing if the call is not open. */
  remove(id: CallId): void {
    if (this.get(id) === undefined) return;
    this.#items[slotOfCall(id) - this.#first] = undefined;
    this.#size--;
  }

  /** Returns a copy, because calls may end while the caller loops over it. */
  all(): T[] {
    return this.#items.filter((item) => item !== undefined);
  }
}
