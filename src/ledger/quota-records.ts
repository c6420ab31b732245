/**
 * Holds which scope has which quota record (layout.ts), and the limits of scopes and plans. scope-quotas.ts
 * extends this class and counts the use; scope-chain.ts reads the limits of each call's scopes. `record` is
 * the index of a record, `quota` the number of a quota in EXTENDED_QUOTAS. Any thread, unless a method says
 * main thread.
 *
 * Must hold: a scope has one record on all threads, and a record one scope. So a thread gives a scope a
 * record by a compare-exchange of the scope's word, and no record is given back. A thread that loses the
 * exchange keeps its record for the next scope. If all records are in use, the scope's calls are rejected,
 * never admitted uncounted. Tests: test/unit/ledger/quotas.test.ts (a scope whose quotas cannot be counted
 * refuses), test/threads/quota-records.test.ts (two threads race for each record).
 */
import { PICO_PER_NANO } from '../core/money.js';
import { QUOTA_FIELDS, QUOTA_KINDS, type QuotaLimits } from '../core/quotas.js';
import {
  EXTENDED_QUOTAS,
  type ExtendedQuota,
  LIMITS,
  lowestQuotaOf,
  MASK,
  QUOTA_WORDS32,
  QUOTA_WORDS64,
  type QuotaNumber,
  type QuotaViews,
} from './layout.js';

/** A scope's word, instead of record + 1, if the scope has quotas but found all records in use. */
export const NO_RECORD_LEFT = -1;
const QUOTA_COUNT = EXTENDED_QUOTAS.length;
/** The quotas by number, with their names. */
export const NUMBERED_QUOTAS = [...EXTENDED_QUOTAS.entries()] as unknown as readonly (readonly [
  QuotaNumber,
  ExtendedQuota,
])[];
/** Unit and period of each quota, by its number in EXTENDED_QUOTAS. */
export const KINDS = EXTENDED_QUOTAS.map((name) => QUOTA_KINDS[name]);

/** The limits of a plan, as calls take them: money in nano-units. */
export interface PlanQuotas {
  /** Bit n: there is a limit of quota n. */
  readonly mask: number;
  /** By the quota's number in EXTENDED_QUOTAS. Only limits of quotas in `mask` are valid. */
  readonly limits: Float64Array;
}

export class QuotaRecords {
  readonly #views: QuotaViews;
  readonly #capacity: number;
  readonly #plans = new WeakMap<QuotaLimits, PlanQuotas>();
  /** A record that this thread took for a scope to which another thread then gave one first. */
  #unusedRecord: number | undefined;

  constructor(views: QuotaViews) {
    this.#views = views;
    this.#capacity = views.words64.length / QUOTA_WORDS64;
  }

  /** The quotas of a plan, computed once for each object, which must not change. */
  planOf(quotas: QuotaLimits): PlanQuotas {
    let plan = this.#plans.get(quotas);
    if (plan === undefined) {
      const limits = new Float64Array(QUOTA_COUNT);
      plan = { mask: fill(limits, quotas), limits };
      this.#plans.set(quotas, plan);
    }
    return plan;
  }

  /**
   * Bit n: the record has a limit of quota n. Reads without an atomic load, which takes ten times as long: an
   * operator's change counts from the next call on.
   */
  maskOf(record: number): number {
    return this.#views.words32[record * QUOTA_WORDS32 + MASK]!;
  }

  /** The limits of all records. The main thread alone writes limits, each as one word. */
  get limits(): Float64Array {
    return this.#views.floats;
  }

  /** The index in `limits` of a record's first limit. */
  firstLimitOf(record: number): number {
    return record * QUOTA_WORDS64 + LIMITS;
  }

  /** Money in nano-units. Only for a quota in the mask: words of other quotas have former limits, or 0. */
  limitOf(record: number, quota: QuotaNumber): number {
    return this.limits[this.firstLimitOf(record) + quota]!;
  }

  /** The limits of a record, but for requests a minute and calls a day, which limited-scopes.ts adds. */
  limitsOf(record: number): QuotaLimits {
    const mask = this.maskOf(record);
    const limits: Record<string, number | bigint | undefined> = {};
    for (const [quota, name] of NUMBERED_QUOTAS) {
      const limit = (mask & (1 << quota)) === 0 ? undefined : this.limitOf(record, quota);
      const isMoney = KINDS[quota]!.unit === 'money';
      limits[QUOTA_FIELDS[name]] = isMoney && limit !== undefined ? BigInt(limit) * PICO_PER_NANO : limit;
    }
    return limits as unknown as QuotaLimits;
  }

  /** Sets the limits of the scope whose word `words[word]` names its quota record, or will. Main thread. */
  setLimits(words: Int32Array, word: number, limits: Partial<QuotaLimits>): void {
    const newLimits = new Float64Array(QUOTA_COUNT);
    const mask = fill(newLimits, limits);
    // Exchanges, not stores, because another thread may have given the scope a record meanwhile.
    if (mask === 0 && Atomics.load(words, word) <= 0) {
      Atomics.compareExchange(words, word, NO_RECORD_LEFT, 0);
      return;
    }
    const record = this.recordAt(words, word);
    if (record === undefined) {
      const current = Atomics.compareExchange(words, word, 0, NO_RECORD_LEFT);
      if (current > 0) this.setLimits(words, word, limits);
      return;
    }
    // Limits before the mask, or a thread could use a limit that is not set yet. The word of a limit that is
    // taken away stays as it was, because a thread that has read the former mask may still use it. Readers
    // load both without atomics, so on ARM a call of that moment may find the new mask and still a former
    // limit, or 0, which rejects it. An atomic load would cost every call (`maskOf`).
    for (let bits = mask; bits !== 0; bits &= bits - 1) {
      const quota = lowestQuotaOf(bits);
      this.limits[this.firstLimitOf(record) + quota] = newLimits[quota]!;
    }
    Atomics.store(this.#views.words32, record * QUOTA_WORDS32 + MASK, mask);
  }

  /** The record that `words[word]` names; a new one if it names none; undefined if all are in use. */
  recordAt(words: Int32Array, word: number): number | undefined {
    // No atomic load (see `maskOf`): if another thread has just set the word, the exchange below finds that.
    const before = words[word]!;
    if (before > 0) return before - 1;
    const record = this.#unusedRecord ?? this.#nextRecord();
    if (record === undefined) return undefined;
    // If `current` is not `before`, another thread has set a record: NO_RECORD_LEFT is set by the main thread
    // alone, which also alone calls this for keys and groups.
    const current = Atomics.compareExchange(words, word, before, record + 1);
    this.#unusedRecord = current === before ? undefined : record;
    return current === before ? record : current - 1;
  }

  /** Whether `setLimits` of that scope would find a record, or need none. Main thread. */
  hasRoom(words: Int32Array, word: number, limits: Partial<QuotaLimits>): boolean {
    const needsRecord = EXTENDED_QUOTAS.some((name) => limits[QUOTA_FIELDS[name]] !== undefined);
    if (!needsRecord || Atomics.load(words, word) > 0 || this.#unusedRecord !== undefined) return true;
    return Atomics.load(this.#views.used, 0) < this.#capacity;
  }

  /** A record that no scope has; undefined if all are in use. */
  #nextRecord(): number | undefined {
    const record = Atomics.add(this.#views.used, 0, 1);
    if (record < this.#capacity) return record;
    Atomics.sub(this.#views.used, 0, 1);
    return undefined;
  }
}

/** Writes the limits that are set into `into`, money in nano-units; returns their mask. */
function fill(into: Float64Array, limits: Partial<QuotaLimits>): number {
  let mask = 0;
  for (const [quota, name] of NUMBERED_QUOTAS) {
    const limit = limits[QUOTA_FIELDS[name]];
    if (limit === undefined) continue;
    into[quota] = typeof limit === 'bigint' ? Number(limit / PICO_PER_NANO) : limit;
    mask |= 1 << quota;
  }
  return mask;
}
