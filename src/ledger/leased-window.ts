/**
 * Requests a minute if the limit is shared with other processes: threads take permits of what the coordinator
 * granted to this process, until it is used up or has expired. counters.ts chooses this class; the lease
 * manager puts the grants in, by leases.ts. Any thread.
 *
 * One 64-bit word holds the grant: the monotonic millisecond of its expiry (44 bits) and the permits left (20
 * bits). To take one is one compare-exchange. As in window.ts the clock is read again after it: if the thread
 * stalled until the grant had expired, or for TAKE_MS_MAX, its permit is abandoned. The lease manager tells
 * the coordinator which permits were taken, so they must be used soon after that.
 *
 * If nothing is left here, `asks` says whether the coordinator may have more.
 *
 * Must hold: no permit is used after its expiry, nor later than TAKE_MS_MAX after it was taken (also
 * threads/leases).
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { REQUESTS_PER_MINUTE_MAX } from '../core/limits.js';
import { asWallMs, type AccountIndex } from '../core/units.js';
import {
  COUNTED_WORDS32,
  COUNTED_WORDS64,
  LOW_MINUTE,
  MINUTE_HELD_BY_OTHERS,
  MINUTE_FREE_MS,
  MINUTE_REJECTED_LIMIT,
  MINUTE_REJECTED_UNTIL_MS,
  WINDOW,
  type CountedViews,
} from './layout.js';
import type { MinuteCounter, MinuteTake } from './window.js';

const COUNT_BITS = 20n;
export const PERMITS_MAX = (1 << Number(COUNT_BITS)) - 1;
invariant(REQUESTS_PER_MINUTE_MAX <= PERMITS_MAX, 'a minute of permits fits the count');

/**
 * How long after its expiry a permit may weigh at the coordinator: a minute and the tick it is counted in.
 */
const WEIGHING_MS = 60_600;

/**
 * A permit is used so soon after it was taken, or not at all. Less than a tick of the coordinator, which
 * lets a permit that is named as used weigh for a minute from the end of the next tick on.
 */
const TAKE_MS_MAX = 500;

/** A lost exchange means that another thread made progress. To lose so many in a row is a bug. */
const TRIES_MAX = 100_000;

/** The word of a grant. `expiresMs` is monotonic, and is rounded down. */
export function grantOf(expiresMs: number, permits: number): bigint {
  return (BigInt(Math.floor(expiresMs)) << COUNT_BITS) | BigInt(permits);
}

export function permitsOf(grant: bigint): number {
  return Number(BigInt.asUintN(Number(COUNT_BITS), grant));
}

export function expiryMsOf(grant: bigint): number {
  return Number(grant >> COUNT_BITS);
}

export class LeasedWindow<Index extends number = AccountIndex> implements MinuteCounter<Index> {
  readonly #words64: BigInt64Array;
  readonly #words32: Int32Array;
  readonly #clock: Clock;
  readonly #onLow: (counted: Index) => void;
  readonly #take: { -readonly [Field in keyof MinuteTake]: MinuteTake[Field] } = {
    admitted: false,
    remaining: 0,
    resetWallMs: asWallMs(0),
    asks: false,
  };

  /** `onLow` is called by the thread whose permit leaves only LOW_MINUTE. */
  constructor(views: CountedViews, clock: Clock, onLow: (counted: Index) => void) {
    this.#words64 = views.records64;
    this.#words32 = views.records32;
    this.#clock = clock;
    this.#onLow = onLow;
  }

  /**
   * Takes one of the granted permits, or nothing; the coordinator applies the limit. Returns one object that
   * the next call overwrites.
   */
  take(counted: Index, limit = 0): MinuteTake {
    return this.#decide(counted, limit, true);
  }

  check(counted: Index, limit = 0): MinuteTake {
    return this.#decide(counted, limit, false);
  }

  /** Always 0: only the coordinator knows, see `Coordinator.look`. */
  usedOf(): number {
    return 0;
  }

  /** Does nothing: the coordinator has the counts. */
  restore(): void {
    return;
  }

  /**
   * Drops what was granted; the coordinator counts it until it has expired. Main thread, before the account
   * is first used.
   */
  clear(counted: Index): void {
    Atomics.store(this.#words64, counted * COUNTED_WORDS64 + WINDOW, 0n);
  }

  #decide(counted: Index, limit: number, takes: boolean): MinuteTake {
    const word = counted * COUNTED_WORDS64 + WINDOW;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const grant = Atomics.load(this.#words64, word);
      const left = permitsOf(grant);
      const expiresMs = expiryMsOf(grant);
      const nowMs = this.#clock.monotonicMs();
      if (left === 0 || nowMs >= expiresMs) return this.#reject(counted, limit, nowMs);
      if (!takes) return this.#admit(counted, left, expiresMs, nowMs);
      if (Atomics.compareExchange(this.#words64, word, grant, grant - 1n) !== grant) continue;
      const takenMs = this.#clock.monotonicMs();
      if (takenMs >= expiresMs || takenMs - nowMs > TAKE_MS_MAX) continue;
      if (left - 1 === Atomics.load(this.#words32, counted * COUNTED_WORDS32 + LOW_MINUTE)) {
        this.#onLow(counted);
      }
      return this.#admit(counted, left - 1, expiresMs, nowMs);
    }
    throw new Error('invariant broken: a permit is taken or refused in bounded tries');
  }

  #admit(counted: Index, left: number, expiresMs: number, nowMs: number): MinuteTake {
    const heldByOthers = Atomics.load(this.#words32, counted * COUNTED_WORDS32 + MINUTE_HELD_BY_OTHERS);
    const take = this.#take;
    take.admitted = true;
    take.remaining = left + heldByOthers;
    take.resetWallMs = asWallMs(this.#clock.wallMs() + Math.ceil(expiresMs - nowMs) + WEIGHING_MS);
    take.asks = false;
    return take;
  }

  #reject(counted: Index, limit: number, nowMs: number): MinuteTake {
    const first = counted * COUNTED_WORDS64;
    const freeMs = Number(Atomics.load(this.#words64, first + MINUTE_FREE_MS));
    const take = this.#take;
    take.admitted = false;
    take.remaining = 0;
    take.resetWallMs = asWallMs(this.#clock.wallMs() + Math.max(0, Math.ceil(freeMs - nowMs)) + 1);
    take.asks =
      nowMs >= Number(Atomics.load(this.#words64, first + MINUTE_REJECTED_UNTIL_MS)) ||
      limit !== Atomics.load(this.#words32, counted * COUNTED_WORDS32 + MINUTE_REJECTED_LIMIT);
    return take;
  }
}
