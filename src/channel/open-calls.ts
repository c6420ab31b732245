/**
 * The ids of calls in flight, and the table of open calls that each side of a channel keeps.
 * listener-channel.ts uses it in a listener, worker-channel.ts in a worker. call-table.ts takes ids apart.
 *
 * A call id is the call's slot plus 2^20 times a generation, which the listener counts up for each call of a
 * slot. So a late frame of an earlier call in the slot has another id, and is dropped. When a listener dies,
 * workers may still have its calls, and its successor gets the same slots. So each listener begins at a
 * random one of 2^32 generations, which makes equal ids all but impossible.
 *
 * Must hold: a call id is not used again while a frame of an earlier call may be under way; else a caller
 * gets bytes of another's response. In test/unit/channel, open-calls.test.ts tests the last generation of a
 * slot, link.test.ts the frames of two listeners. No test has a random generation that comes twice.
 */
import { invariant } from '../core/errors.js';
import { asCallSlot, type Branded, type CallSlot } from '../core/units.js';

/**
 * Slot + generation × 2^20. A safe integer has 53 bits: 20 for the slot, 33 for the generation. After the
 * last generation comes 1, so a slot has an id again after 2^33 - 1 calls. Branded, because a slot alone is a
 * number too, and does not say which of its calls is meant.
 */
export type CallId = Branded<number, 'CallId'>;

/** Checks nothing. `nextId` makes ids; frame-codec.ts reads them from the ring. */
export const asCallId = (value: number): CallId => value as CallId;

/** By how much a slot's ids grow from call to call. All slots are below it: CALLS_IN_FLIGHT_MAX equals it. */
const GENERATION_STEP = 2 ** 20;
/** The id of slot 0 in the last generation. Ids from here on are of that generation. */
const LAST_GENERATION = GENERATION_STEP * (2 ** 33 - 1);

/** The call slot of an id. `&` reads the low 32 bits of a safe integer exactly. */
export function slotOfCall(id: CallId): CallSlot {
  return asCallSlot(id & (GENERATION_STEP - 1));
}

/**
 * The low 32 bits of the call's generation, as the signed word that call-table.ts shares. In a listener, two
 * calls of a slot with the same bits are at least 2^32 - 1 calls apart, because generation 0 is left out.
 */
export function generationOfCall(id: CallId): number {
  return (id / GENERATION_STEP) | 0;
}

/**
 * What a side of the channel keeps of each open call (its _item_), by call slot: the slots `first` to
 * `first + count - 1`. It is an array: a Map would keep ended calls in memory for seconds (core/slot-array.ts
 * says why).
 */
export class OpenCalls<T> {
  readonly #first: number;
  readonly #items: (T | undefined)[];
  /** By slot: the id of its open call, or of its last one; 0 before the first. */
  readonly #ids: Float64Array;
  /** The random first generation × 2^20, for `nextId`. */
  readonly #firstId = GENERATION_STEP * Math.floor(Math.random() * 2 ** 32);

  constructor(first: number, count: number) {
    invariant(first + count <= GENERATION_STEP, 'a call id has room for every slot');
    this.#first = first;
    this.#items = new Array<undefined>(count).fill(undefined);
    this.#ids = new Float64Array(count);
  }

  /**
   * The id of the slot's next call: the same until `add` is called. Only a listener calls this, for its own
   * slots: a worker would begin at a generation of its own.
   */
  nextId(slot: CallSlot): CallId {
    const lastId = this.#ids[slot - this.#first]!;
    if (lastId >= LAST_GENERATION) return asCallId(GENERATION_STEP + slot);
    return asCallId((lastId === 0 ? this.#firstId + slot : lastId) + GENERATION_STEP);
  }

  /** The call's item; undefined if the call has ended or never was here. */
  get(id: CallId): T | undefined {
    const index = slotOfCall(id) - this.#first;
    return this.#ids[index] === id ? this.#items[index] : undefined;
  }

  /**
   * The item of the open call in a slot; undefined if there is none. The caller must know that the slot still
   * belongs to the call that it means: it does until the listener releases the slot.
   */
  at(slot: CallSlot): T | undefined {
    return this.#items[slot - this.#first];
  }

  /**
   * Opens a call. An invariant fails if the earlier call of its slot was not removed, or if the slot is not
   * one of this side: such a call would never be found again.
   */
  add(id: CallId, item: T): void {
    const index = slotOfCall(id) - this.#first;
    invariant(this.#ids[index] !== undefined, 'a call slot belongs to this side of the channel');
    invariant(this.#items[index] === undefined, 'a call slot carries one call');
    this.#ids[index] = id;
    this.#items[index] = item;
  }

  /** Does nothing if the call is not open. */
  remove(id: CallId): void {
    if (this.get(id) !== undefined) this.#items[slotOfCall(id) - this.#first] = undefined;
  }

  /** Returns the items in a new array, because calls may end while the caller loops over them. */
  all(): T[] {
    return this.#items.filter((item) => item !== undefined);
  }
}
