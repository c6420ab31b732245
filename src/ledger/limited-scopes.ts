/**
 * Limits and counts of the keys, of the groups, or of the rules for models. Minute and day are counted by the
 * same code as an account's, in records of their own; further quotas in quota records (scope-quotas.ts). Each
 * thread's Ledger has three LimitedScopes, one for each kind, over the same buffers. calls.ts takes by them,
 * registry/live-buffers.ts sets limits, store/quota-uses.ts stores the use. `index` is the slot of a scope.
 * Any thread, unless a method says main thread.
 *
 * Must hold: each take and each giving back marks the scope dirty, because a restart forgets what is not
 * flushed. This file marks for the day, which it alone reaches, window.ts for the minute, calls.ts for all
 * other quotas (test/unit/ledger/quotas.test.ts: a flush at each step of a call).
 */
import { invariant } from '../core/errors.js';
import { NO_QUOTAS, type QuotaLimits } from '../core/quotas.js';
import type { KeyIndex, WallMs } from '../core/units.js';
import type { DayCount, DayCounter } from './day.js';
import { DirtySet } from './dirty-set.js';
import * as layout from './layout.js';
import type { CountedViews } from './layout.js';
import { NO_RECORD_LEFT } from './quota-records.js';
import type { ScopeQuotas } from './scope-quotas.js';
import type { MinuteCounter } from './window.js';

/** The word of a limit that is not set. Nobody can set a limit of 0. */
const NO_LIMIT = 0;

export interface ScopeCounts extends DayCount {
  /** Permits that weigh in the current minute. */
  readonly minuteUsed: number;
}

export class LimitedScopes<Index extends number = KeyIndex> {
  readonly #slots: number;
  readonly #words32: Int32Array;
  readonly minute: MinuteCounter<Index>;
  readonly #day: DayCounter;
  readonly #quotas: ScopeQuotas;
  /** Scopes whose use or counts the next flush stores. */
  readonly dirty: DirtySet<Index>;

  /** `slots`: how many there are in `views`. `counters` makes the counters of minute and day there. */
  constructor(
    slots: number,
    views: CountedViews,
    counters: (views: CountedViews) => { readonly minute: MinuteCounter<Index>; readonly day: DayCounter },
    quotas: ScopeQuotas,
  ) {
    invariant(slots * layout.COUNTED_WORDS32 <= views.records32.length, 'each slot has a record');
    const { minute, day } = counters(views);
    this.#slots = slots;
    this.#words32 = views.records32;
    this.minute = minute;
    this.#day = day;
    this.#quotas = quotas;
    this.dirty = new DirtySet(views);
  }

  /** The limits of a scope that was opened; money is rounded to whole nano-units. Allocates. */
  limitsOf(index: Index): QuotaLimits {
    const record = this.recordOf(index);
    return {
      ...(record === undefined ? NO_QUOTAS : this.#quotas.limitsOf(record)),
      requestsPerMinute: this.requestsPerMinuteOf(index),
      callsPerDay: this.callsPerDayOf(index),
    };
  }

  requestsPerMinuteOf(index: Index): number | undefined {
    const requestsPerMinute = this.#word(index, layout.REQUESTS_PER_MINUTE);
    return requestsPerMinute === NO_LIMIT ? undefined : requestsPerMinute;
  }

  callsPerDayOf(index: Index): number | undefined {
    const callsPerDay = this.#word(index, layout.CALLS_PER_DAY);
    return callsPerDay === NO_LIMIT ? undefined : callsPerDay;
  }

  /** Takes a call of the scope's day. Returns the number of its day; undefined if none is left. */
  takeDay(index: Index, callsPerDay: number, nowMs?: WallMs): number | undefined {
    const dayNumber = this.#day.take(index, callsPerDay, nowMs);
    if (dayNumber !== undefined) this.dirty.mark(index);
    return dayNumber;
  }

  /** How many calls the last `takeDay` left of its day, as far as this process knows. */
  get dayLeft(): number {
    return this.#day.left;
  }

  /** Gives back a call that `takeDay` took from `dayNumber`, once. */
  giveBackDay(index: Index, dayNumber: number): void {
    this.#day.giveBack(index, dayNumber);
    this.dirty.mark(index);
  }

  /** What the scope has used: permits that weigh now, and the calls of its last day. Allocates. */
  countsOf(index: Index): ScopeCounts {
    return { minuteUsed: this.minute.usedOf(index), ...this.#day.read(index) };
  }

  /** The quota record of the scope; undefined if the scope has no quotas besides the minute and the day. */
  recordOf(index: Index): number | undefined {
    return layout.indexIn(this.#word(index, layout.RECORD));
  }

  /** Whether the scope has quotas but no record, because all are in use. Its calls are then rejected. */
  isUncounted(index: Index): boolean {
    return this.#word(index, layout.RECORD) === NO_RECORD_LEFT;
  }

  /** Whether `setLimits` would find a quota record for the scope, or need none. Main thread. */
  hasRoom(index: Index, limits: Partial<QuotaLimits>): boolean {
    return this.#quotas.hasRoom(this.#words32, layout.recordAt(index), limits);
  }

  /** As `recordOf`, but a scope without a record gets one; undefined if all are in use. */
  recordOrNew(index: Index): number | undefined {
    return this.#quotas.recordAt(this.#words32, layout.recordAt(index));
  }

  /** The group above a group; undefined if there is none. */
  parentOf(index: Index): Index | undefined {
    return layout.indexIn(this.#word(index, layout.PARENT)) as Index | undefined;
  }

  /**
   * Sets the limits of a scope that no thread uses yet, and its use: none, or `used`, counted `ageMs` ago.
   * `parent` is for groups. Main thread.
   */
  open(
    index: Index,
    limits: Partial<QuotaLimits>,
    { used, ageMs = 0, parent }: { used?: ScopeCounts; ageMs?: number; parent?: Index | undefined } = {},
  ): void {
    invariant(index >= 0 && index < this.#slots, `scope ${index} is within the ledger`);
    this.setLimits(index, limits);
    // A slot that is given again may still have the quota record of its former scope, with its use.
    const record = this.recordOf(index);
    if (record !== undefined) this.#quotas.clear(record);
    Atomics.store(this.#words32, index * layout.COUNTED_WORDS32 + layout.PARENT, layout.wordOf(parent));
    this.minute.clear(index);
    this.#day.set(index, used?.dayNumber ?? 0, used?.dayCalls ?? 0);
    if (used !== undefined) this.minute.restore(index, used.minuteUsed, ageMs);
  }

  /** The other threads use the limits from the next call on. Main thread. */
  setLimits(index: Index, limits: Partial<QuotaLimits>): void {
    const first = index * layout.COUNTED_WORDS32;
    Atomics.store(this.#words32, first + layout.REQUESTS_PER_MINUTE, limits.requestsPerMinute ?? NO_LIMIT);
    Atomics.store(this.#words32, first + layout.CALLS_PER_DAY, limits.callsPerDay ?? NO_LIMIT);
    this.#quotas.setLimits(this.#words32, layout.recordAt(index), limits);
  }

  /**
   * Reads without an atomic load, which takes ten times as long; a call would need a dozen of them. The words
   * change only when an operator changes the scope or a rule gets its record, and the next call reads that.
   */
  #word(index: Index, field: number): number {
    return this.#words32[index * layout.COUNTED_WORDS32 + field]!;
  }
}
