/**
 * Those who wait for something, in order; anybody may leave from anywhere in it. In place of a Set, see core/slot-list. The links are in who
 * waits, and cut when it leaves, so that the dead keep nobody alive. Upstream worker.
 */
export interface Waiter<T> {
  isWaiting: boolean;
  /** Undefined while it does not wait. */
  ahead: T | undefined;
  behind: T | undefined;
}

export class WaitingLine<T extends Waiter<T>> {
  #first: T | undefined;
  #last: T | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Last of all. */
  add(waiter: T): void {
    waiter.isWaiting = true;
    waiter.ahead = this.#last;
    if (this.#last === undefined) this.#first = waiter;
    else this.#last.behind = waiter;
    this.#last = waiter;
    this.#size++;
  }

  /** Nothing where it does not wait. */
  remove(waiter: T): void {
    if (!waiter.isWaiting) return;
    const { ahead, behind } = waiter;
    if (ahead === undefined) this.#first = behind;
    else ahead.behind = behind;
    if (behind === undefined) this.#last = ahead;
    else behind.ahead = ahead;
    waiter.isWaiting = false;
    waiter.ahead = undefined;
    waiter.behind = undefined;
    this.#size--;
  }

  /** Who has waited longest, and waits no more. */
  take(): T | undefined {
    const first = this.#first;
    if (first !== undefined) this.remove(first);
    return first;
  }
}
