/**
 * A bounded queue that serves its owners in turn (round-robin), so that an owner with many items delays only
 * itself. The main thread has one for the jobs of counter threads (gateway/counter-pool.ts), each worker one
 * for the calls that wait for an upstream (upstream/quota-queue.ts). Owners are accounts, weights are bytes.
 *
 * An item is a value with its weight. An owner has a lane while one of its items waits. The Map holds the
 * lanes in the order of their turns: the first lane gives one item, and goes to the end if it has more.
 *
 * Must hold: an owner's first item waits for at most one item of each other owner (the test tries all short
 * histories). No lane is empty.
 */

interface Item<T> {
  readonly value: T;
  readonly weight: number;
}

interface Lane<T> {
  readonly items: Item<T>[];
  /** The weights of all items together. */
  weight: number;
}

interface FairQueueBounds {
  /** Bound of the weight of all items together. */
  readonly weightMax: number;
  /** Bound of the weight of one owner's items together. */
  readonly ownerWeightMax: number;
}

export class FairQueue<Owner, T> {
  readonly #bounds: FairQueueBounds;
  readonly #lanes = new Map<Owner, Lane<T>>();
  #weight = 0;
  #size = 0;

  constructor(bounds: FairQueueBounds) {
    this.#bounds = bounds;
  }

  get size(): number {
    return this.#size;
  }

  /** Weight of all items. Never above `weightMax`, except by items that were put back. */
  get weight(): number {
    return this.#weight;
  }

  /**
   * Puts a value after the owner's others. If the queue is full, it drops the latest values of the heaviest
   * lane until there is space, provided that this lane, less the weight of the value, is at least as heavy as
   * the owner's with it. A dropped value may be heavier than the space that was needed. Returns the values
   * that are not in the queue now: those that were dropped, or `value` alone if the bounds forbid it.
   */
  offer(owner: Owner, value: T, weight: number): T[] {
    const { weightMax, ownerWeightMax } = this.#bounds;
    const laneWeight = (this.#lanes.get(owner)?.weight ?? 0) + weight;
    if (laneWeight > ownerWeightMax || weight > weightMax) return [value];
    const dropped: T[] = [];
    if (this.#weight + weight > weightMax) {
      const heaviest = this.#heaviest();
      if (heaviest === undefined || heaviest[1].weight - weight < laneWeight) return [value];
      while (this.#weight + weight > weightMax && heaviest[1].items.length > 0)
        dropped.push(this.#takeOut(heaviest[0], heaviest[1].items.length - 1));
    }
    const lane = this.#lanes.get(owner) ?? { items: [], weight: 0 };
    lane.items.push({ value, weight });
    this.#lanes.set(owner, lane);
    this.#grow(lane, weight);
    return dropped;
  }

  /**
   * Puts back a value that was taken and needs another turn: before the owner's others, and the owner's lane
   * goes to the end. Drops nothing, so the weights may exceed the bounds.
   */
  putBack(owner: Owner, value: T, weight: number): void {
    const lane = this.#lanes.get(owner) ?? { items: [], weight: 0 };
    lane.items.unshift({ value, weight });
    this.#moveToEnd(owner, lane);
    this.#grow(lane, weight);
  }

  /** Takes out the value whose turn it is; undefined if the queue is empty. */
  take(): T | undefined {
    for (const [owner, lane] of this.#lanes) {
      this.#moveToEnd(owner, lane);
      return this.#takeOut(owner, 0);
    }
    return undefined;
  }

  /**
   * Yields every value with its owner, in the order in which `take` would return the values, in time linear
   * in their number. Once the queue has changed, do not go on with the generator: call `inTurn` again.
   */
  *inTurn(): Generator<readonly [Owner, T]> {
    let lanes: Iterable<readonly [Owner, Lane<T>]> = this.#lanes;
    for (let round = 0; ; round++) {
      // The lanes with an item in the next round. Only these are visited in that round, so that one owner
      // with many items costs no visits of all others.
      const lanesOfNextRound: (readonly [Owner, Lane<T>])[] = [];
      for (const lane of lanes) {
        const [owner, { items }] = lane;
        if (items.length > round + 1) lanesOfNextRound.push(lane);
        yield [owner, items[round]!.value];
      }
      if (lanesOfNextRound.length === 0) return;
      lanes = lanesOfNextRound;
    }
  }

  /** Takes out a value that `inTurn` has yielded, as its turn: the owner's lane goes to the end. */
  serve(owner: Owner, value: T): void {
    const lane = this.#lanes.get(owner);
    if (this.remove(owner, value) && lane !== undefined && lane.items.length > 0)
      this.#moveToEnd(owner, lane);
  }

  /** Takes out the owner's first such value, without a turn; false if there is none. */
  remove(owner: Owner, value: T): boolean {
    const index = this.#lanes.get(owner)?.items.findIndex((item) => item.value === value) ?? -1;
    if (index === -1) return false;
    this.#takeOut(owner, index);
    return true;
  }

  /** The owner must have a lane with an item at `index`. */
  #takeOut(owner: Owner, index: number): T {
    const lane = this.#lanes.get(owner)!;
    const [item] = lane.items.splice(index, 1);
    lane.weight -= item!.weight;
    this.#weight -= item!.weight;
    this.#size -= 1;
    if (lane.items.length === 0) this.#lanes.delete(owner);
    return item!.value;
  }

  #moveToEnd(owner: Owner, lane: Lane<T>): void {
    this.#lanes.delete(owner);
    this.#lanes.set(owner, lane);
  }

  #grow(lane: Lane<T>, weight: number): void {
    lane.weight += weight;
    this.#weight += weight;
    this.#size += 1;
  }

  #heaviest(): [Owner, Lane<T>] | undefined {
    let heaviest: [Owner, Lane<T>] | undefined;
    for (const ownerAndLane of this.#lanes)
      if (heaviest === undefined || ownerAndLane[1].weight > heaviest[1].weight) heaviest = ownerAndLane;
    return heaviest;
  }
}
