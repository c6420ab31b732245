/**
 * Limits of single keys, besides those of their account: a minute and a day, counted by the same code as an
 * account's, in records of their own. Each thread has a KeyLimits over the same buffers, in its Ledger. Any
 * thread, unless a method says main thread.
 *
 * No caller asks about a key without limits, so its record is never touched and takes no memory.
 */
import { invariant } from '../core/errors.js';
import type { KeyIndex } from '../core/units.js';
import type { DayCalls } from './day.js';
import { DirtySet } from './dirty-set.js';
import { COUNTED_WORDS32, KEY_CALLS_PER_DAY, KEY_REQUESTS_PER_MINUTE, type CountedViews } from './layout.js';
import type { MinuteCounter, MinuteTake } from './window.js';

const NO_LIMIT = 0;

/** A field is undefined if only the account's limit counts. */
export interface KeyLimit {
  readonly requestsPerMinute: number | undefined;
  readonly callsPerDay: number | undefined;
}

/** A key that has a limit of calls a day. */
export interface KeyDay {
  readonly key: KeyIndex;
  readonly callsPerDay: number;
}

/** What a key with limits has used. */
export interface KeyCounts {
  readonly minuteUsed: number;
  /** The last day the key was used, in days since 1970-01-01 UTC+8, and its calls on that day. */
  readonly dayNumber: number;
  readonly dayCalls: number;
}

export class KeyLimits {
  readonly #keysMax: number;
  readonly #words32: Int32Array;
  readonly #window: MinuteCounter<KeyIndex>;
  readonly #day: DayCalls<KeyIndex>;
  readonly #dirty: DirtySet<KeyIndex>;

  constructor(
    keysMax: number,
    views: CountedViews,
    window: MinuteCounter<KeyIndex>,
    day: DayCalls<KeyIndex>,
  ) {
    this.#keysMax = keysMax;
    this.#words32 = views.records32;
    this.#window = window;
    this.#day = day;
    this.#dirty = new DirtySet(views);
  }

  /** The limits of a key that was opened. Allocates. */
  limitOf(key: KeyIndex): KeyLimit {
    const requestsPerMinute = this.#word(key, KEY_REQUESTS_PER_MINUTE);
    const callsPerDay = this.#word(key, KEY_CALLS_PER_DAY);
    return {
      requestsPerMinute: requestsPerMinute === NO_LIMIT ? undefined : requestsPerMinute,
      callsPerDay: callsPerDay === NO_LIMIT ? undefined : callsPerDay,
    };
  }

  /** Takes one request of the key's minute, or nothing; see `Window.take`. */
  takeMinute(key: KeyIndex, requestsPerMinute: number): MinuteTake {
    return this.#window.take(key, requestsPerMinute);
  }

  /** What `takeMinute` would return now; takes nothing. */
  checkMinute(key: KeyIndex, requestsPerMinute: number): MinuteTake {
    return this.#window.check(key, requestsPerMinute);
  }

  /** Takes a call of the key's day. Returns the number of its day; undefined if none is left. */
  takeDay({ key, callsPerDay }: KeyDay): number | undefined {
    const dayNumber = this.#day.take(key, callsPerDay);
    if (dayNumber !== undefined) this.#dirty.mark(key);
    return dayNumber;
  }

  /** Gives back a call that `takeDay` took from `dayNumber`. */
  giveBackDay(key: KeyIndex, dayNumber: number): void {
    this.#day.giveBack(key, dayNumber);
    this.#dirty.mark(key);
  }

  /** Marks the key dirty, so that the next flush stores its use and its counts. */
  mark(key: KeyIndex): void {
    this.#dirty.mark(key);
  }

  /** Visits at most `max` keys that were marked since their last visit; see `DirtySet.drain`. Main thread. */
  drainDirty(visit: (key: KeyIndex) => void, max: number): number {
    return this.#dirty.drain(visit, max);
  }

  countsOf(key: KeyIndex): KeyCounts {
    return { minuteUsed: this.#window.usedOf(key), ...this.#day.read(key) };
  }

  /**
   * Sets the limits of a key that no thread knows yet, and what it has used: nothing, or `used`, counted
   * `ageMs` ago. Main thread.
   */
  open(key: KeyIndex, limit: KeyLimit, used?: KeyCounts, ageMs = 0): void {
    invariant(key >= 0 && key < this.#keysMax, `key ${key} is within the ledger`);
    const first = key * COUNTED_WORDS32;
    Atomics.store(this.#words32, first + KEY_REQUESTS_PER_MINUTE, limit.requestsPerMinute ?? NO_LIMIT);
    Atomics.store(this.#words32, first + KEY_CALLS_PER_DAY, limit.callsPerDay ?? NO_LIMIT);
    this.#window.clear(key);
    this.#day.set(key, used?.dayNumber ?? 0, used?.dayCalls ?? 0);
    if (used !== undefined) this.#window.restore(key, used.minuteUsed, ageMs);
  }

  #word(key: KeyIndex, field: number): number {
    return Atomics.load(this.#words32, key * COUNTED_WORDS32 + field);
  }
}
