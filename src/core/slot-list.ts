/**
 * Things that come and go by the thousand a second, to be looked at now and then: in place of a Set. Any
 * thread.
 *
 * V8's Set and Map make a new table every so many additions, and each old one points to the next. Once a
 * table has got into the old generation, where dead ones lie until the next large collection, it keeps alive
 * all tables that follow, and with them what was in them: each call of a worker outlived it by seconds, and a
 * small collection took 16 ms in place of 1. So what has one entry a call is kept in an array.
 */
export class SlotList<T> {
  readonly #items: (T | undefined)[] = [];
  /** Places that may be taken again. */
  readonly #free: number[] = [];

  get size(): number {
    return this.#items.length - this.#free.length;
  }

  /** The place of the item, which is its own until `remove`. */
  add(item: T): number {
    const place = this.#free.pop() ?? this.#items.length;
    this.#items[place] = item;
    return place;
  }

  /** The item of a place; undefined if there is none. */
  at(place: number): T | undefined {
    return this.#items[place];
  }

  /** Once for each `add`. */
  remove(place: number): void {
    this.#items[place] = undefined;
    this.#free.push(place);
  }

  /** In no order. What is added or removed meanwhile may be visited or not. */
  *[Symbol.iterator](): Generator<T> {
    for (const item of this.#items) if (item !== undefined) yield item;
  }
}
