/**
 * The use of keys on its way to disk: which have been used since it was last written. Main thread, as a part of a flush.
 *
 * A key in use is marked once a second, and at each call where it has limits of its own, so a flush has one row for it, as
 * it has one for its account. Where several gateways work on the store, what this one has counted since its last flush is
 * added to the row, which is read in the transaction that writes it.
 */
import type { Clock } from '../core/clock.js';
import type { KeyIndex } from '../core/units.js';
import type { KeyUseRecord } from '../registry/key-record.js';
import { keyUseOf, type LiveBuffers } from '../registry/live-buffers.js';

/** The rows that several gateways add to. */
export interface SharedKeyRows {
  /** False of a key that another gateway has deleted. */
  has(key: KeyIndex): boolean;
  findUse(key: KeyIndex): KeyUseRecord | undefined;
}

type Day = Pick<KeyUseRecord, 'dayNumber' | 'dayCalls'>;

const NO_DAY: Day = { dayNumber: 0, dayCalls: 0 };

export class KeyUses {
  readonly #live: LiveBuffers;
  readonly #clock: Clock;
  readonly #shared: SharedKeyRows | undefined;
  /** Of keys with limits, what this gateway has counted and has on disk; and what is being written. */
  readonly #written = new Map<KeyIndex, Day>();
  readonly #writing = new Map<KeyIndex, Day>();
  /** Those of a flush that failed are written by the next. */
  readonly #waiting = new Set<KeyIndex>();

  /** `shared` where other gateways work on the store too. */
  constructor(live: LiveBuffers, clock: Clock, shared?: SharedKeyRows) {
    this.#live = live;
    this.#clock = clock;
    this.#shared = shared;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Takes over the keys that were marked, at most `max`; returns how many. */
  drain(max: number): number {
    return this.#live.ledger.keys.drainDirty((key) => this.#waiting.add(key), max);
  }

  /** Rows for all that wait, as it is now; none for a key that has been deleted. In the transaction that writes them. */
  rows(): Map<KeyIndex, KeyUseRecord> {
    const rows = new Map<KeyIndex, KeyUseRecord>();
    const nowMs = this.#clock.wallMs();
    for (const key of this.#waiting) {
      const use = keyUseOf(key, this.#live, nowMs);
      if (use === undefined) continue;
      if (this.#shared === undefined) rows.set(key, use);
      else if (this.#shared.has(key)) rows.set(key, this.#added(key, use, this.#shared.findUse(key)));
    }
    return rows;
  }

  /** What `rows` gave is on disk. */
  noteWritten(): void {
    this.#waiting.clear();
    for (const [key, day] of this.#writing) this.#written.set(key, day);
    this.#writing.clear();
  }

  /** The row with what was counted here since it was last written. A day that is past on disk is over for all. */
  #added(key: KeyIndex, use: KeyUseRecord, stored: KeyUseRecord | undefined): KeyUseRecord {
    const { dayNumber, dayCalls } = use;
    const lastUsedSeconds = laterOf(use.lastUsedSeconds, stored?.lastUsedSeconds);
    const before = this.#written.get(key) ?? NO_DAY;
    if (dayCalls > 0 || before.dayCalls > 0) this.#writing.set(key, { dayNumber, dayCalls });
    const since = dayCalls - (before.dayNumber === dayNumber ? before.dayCalls : 0);
    const base = stored ?? NO_DAY;
    if (base.dayNumber > dayNumber) {
      return { ...use, lastUsedSeconds, dayNumber: base.dayNumber, dayCalls: base.dayCalls };
    }
    const sum = (base.dayNumber === dayNumber ? base.dayCalls : 0) + since;
    return { ...use, lastUsedSeconds, dayCalls: Math.max(0, sum) };
  }
}

function laterOf(one: number | undefined, other: number | undefined): number | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  return Math.max(one, other);
}
