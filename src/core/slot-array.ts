/**
 * A collection for items that come and go by the thousand a second, in place of a Set: calls, questions. An
 * item keeps its slot, an index of the array, from `add` to `remove`. ask-port.ts, http1/ and request/ use
 * it. Any thread.
 *
 * V8's Set and Map make a new table every so many additions, and each old table points to the next. An old
 * table that has reached the old generation of the heap keeps all later tables alive, and their items, until
 * the next major garbage collection. With a Set each call of a worker outlived its end by seconds, and a
 * minor collection took 16 ms instead of 1. So collections with one item a call are arrays. An array stays as
 * long as the most items that it has held at once, which the calls in flight bound.
 *
 * Must hold: a removed item is garbage at the next minor collection.
 */
import { invariant } from './errors.js';

export class SlotArray<T extends object | string | number> {
  /** Items by slot; a free slot has undefined. */
  readonly #items: (T | undefined)[] = [];
  /** Slots of removed items, to be used again. */
  readonly #free: number[] = [];

  get size(): number {
    return this.#items.length - this.#free.length;
  }

  /** Returns the item's slot. */
  add(item: T): number {
    const slot = this.#free.pop() ?? this.#items.length;
    this.#items[slot] = item;
    return slot;
  }

  /** The item in a slot; undefined if the slot is free. */
  at(slot: number): T | undefined {
    return this.#items[slot];
  }

  /** Frees a slot. Throws if it is free already: two items would get it. */
  remove(slot: number): void {
    invariant(this.#items[slot] !== undefined, 'a slot is freed once');
    this.#items[slot] = undefined;
    this.#free.push(slot);
  }

  /** Yields the items in no particular order. An item that is added or removed meanwhile may be left out. */
  *[Symbol.iterator](): Generator<T> {
    for (const item of this.#items) if (item !== undefined) yield item;
  }
}
