/**
 * How fast something is used lately, from readings of its total. Main thread.
 */

/** Readings weigh by their span against this: a rate follows a change within seconds, and a burst is not taken for the rule. */
const MEMORY_MS = 2_000;
/** Readings that are closer together are put off: one use in a millisecond is no rate of a thousand. */
const SPAN_MS_MIN = 50;

export class UseRate {
  /** Uses a second, lately. */
  perSecond = 0;
  #total: number;
  #readMs: number;

  constructor(total: number, nowMs: number) {
    this.#total = total;
    this.#readMs = nowMs;
  }

  /** `total` has been used up to now; returns whether it has grown since the last reading. */
  read(total: number, nowMs: number): boolean {
    const spanMs = nowMs - this.#readMs;
    if (spanMs < SPAN_MS_MIN) return total > this.#total;
    const grown = total > this.#total;
    const perSecond = (Math.max(0, total - this.#total) * 1_000) / spanMs;
    const weight = 1 - Math.exp(-spanMs / MEMORY_MS);
    this.perSecond += weight * (perSecond - this.perSecond);
    this.#total = total;
    this.#readMs = nowMs;
    return grown;
  }
}
