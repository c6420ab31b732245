/**
 * How much of an amount nobody has touched for a while: the least that was seen in the last two halves of that while. One that
 * was touched a moment ago is thus waited for half of it longer, and not for another whole one. Main thread.
 */
export class IdleFloor<Amount extends number | bigint> {
  readonly #nothing: Amount;
  /** The least of the half before this one; nothing where that was not watched. */
  #before: Amount;
  /** The least since `#sinceMs`; undefined before the first look. */
  #least: Amount | undefined;
  #sinceMs: number;

  constructor(nothing: Amount, nowMs: number) {
    this.#nothing = nothing;
    this.#before = nothing;
    this.#sinceMs = nowMs;
  }

  /** `left` is there now; returns what lay idle for `idleMs`, and nothing between the ends of its halves. */
  look(left: Amount, idleMs: number, nowMs: number): Amount {
    if (this.#least === undefined || left < this.#least) this.#least = left;
    if (nowMs - this.#sinceMs < idleMs / 2) return this.#nothing;
    const floor = this.#least < this.#before ? this.#least : this.#before;
    this.#before = this.#least;
    this.#least = undefined;
    this.#sinceMs = nowMs;
    return floor;
  }

  /** The amount is another one from now on. */
  restart(nowMs: number): void {
    this.#before = this.#nothing;
    this.#least = undefined;
    this.#sinceMs = nowMs;
  }
}
