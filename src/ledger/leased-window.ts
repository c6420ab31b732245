/**
 * Requests a minute if the limit is shared with other processes: threads take permits of what the coordinator
 * granted to this process, until the grant is used up or has expired. ledger.ts and upstream-counters.ts
 * choose this class; the lease manager puts grants in, by leases.ts. Any thread.
 *
 * One 64-bit word holds the grant: the monotonic millisecond of its expiry (44 bits) and the permits left (20
 * bits). A thread takes a permit by one compare-exchange and then reads the clock again, as in window.ts. If
 * the grant has expired meanwhile, or more than TAKE_MS_MAX passed, the thread abandons its permit and tries
 * again. Otherwise a permit could be used after the minute in which the coordinator counts it: the lease
 * manager may have reported the permit as used when it left the word.
 *
 * If the grant has no permit left, `MinuteTake.mayAskForMore` says whether the coordinator may have more.
 *
 * Must hold: no permit is used after its expiry, nor later than TAKE_MS_MAX after it was taken. Further test:
 * test/threads/leases.test.ts.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { REQUESTS_PER_MINUTE_MAX } from '../core/limits.js';
import { asWallMs, type AccountIndex } from '../core/units.js';
import * as layout from './layout.js';
import type { CountedViews } from './layout.js';
import { createMinuteTake, type MinuteCounter, type MinuteTake } from './window.js';

const COUNT_BITS = 20n;
/** The most permits of one grant. leases.ts keeps sums within it. */
export const PERMITS_MAX = (1 << Number(COUNT_BITS)) - 1;
invariant(REQUESTS_PER_MINUTE_MAX <= PERMITS_MAX, 'a minute of permits fits the count');

/** How long the coordinator counts a permit after its expiry. sharing/minute-lease.ts checks the number. */
export const WEIGHING_MS = 60_600;

/**
 * How many ms after it was taken a permit may be used: less than a tick of the coordinator (600 ms), which
 * counts a permit for a minute from the end of the tick after its report. sharing/minute-lease.ts checks
 * that.
 */
export const TAKE_MS_MAX = 500;

/**
 * The word of a grant. `expiresMs` is monotonic, and is rounded down, so that no permit is used too late.
 * Throws if the permits do not fit their bits: they would reach into the expiry. Main thread.
 */
export function grantOf(expiresMs: number, permits: number): bigint {
  invariant(
    Number.isInteger(permits) && permits >= 0 && permits <= PERMITS_MAX,
    `the permits of a grant fit its word, got ${permits}`,
  );
  return (BigInt(Math.floor(expiresMs)) << COUNT_BITS) | BigInt(permits);
}

/** Permits left of a grant, whether or not it has expired. */
export function permitsOf(grant: bigint): number {
  return Number(BigInt.asUintN(Number(COUNT_BITS), grant));
}

/** When a grant expires, in monotonic ms. */
export function expiryMsOf(grant: bigint): number {
  return Number(grant >> COUNT_BITS);
}

export class LeasedWindow<Index extends number = AccountIndex> implements MinuteCounter<Index> {
  readonly #words64: BigInt64Array;
  readonly #words32: Int32Array;
  readonly #clock: Clock;
  readonly #onLow: (scope: Index) => void;
  readonly #take = createMinuteTake();

  /** The take that leaves exactly LOW_MINUTE permits, as leases.ts has set them, calls `onLow`. */
  constructor(views: CountedViews, clock: Clock, onLow: (scope: Index) => void) {
    this.#words64 = views.records64;
    this.#words32 = views.records32;
    this.#clock = clock;
    this.#onLow = onLow;
  }

  /** Takes a granted permit, or nothing. `limit` only decides `mayAskForMore`. */
  take(scope: Index, limit = 0): MinuteTake {
    return this.#decide(scope, limit, 'take');
  }

  /** Returns what `take` would, but takes nothing, so that `remaining` is one more. */
  check(scope: Index, limit = 0): MinuteTake {
    return this.#decide(scope, limit, 'check');
  }

  /** Always 0: only the coordinator knows what all processes use. */
  usedOf(): number {
    return 0;
  }

  /** Does nothing: the coordinator has the counts. */
  restore(): void {
    return;
  }

  /** Drops the grant; the coordinator counts it until it expires. Main thread, before the first use. */
  clear(scope: Index): void {
    Atomics.store(this.#words64, layout.windowAt(scope), 0n);
  }

  #decide(scope: Index, limit: number, purpose: 'take' | 'check'): MinuteTake {
    const word = layout.windowAt(scope);
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      const grant = Atomics.load(this.#words64, word);
      const permitsLeft = permitsOf(grant);
      const expiresMs = expiryMsOf(grant);
      const nowMs = this.#clock.monotonicMs();
      if (permitsLeft === 0 || nowMs >= expiresMs) return this.#reject(scope, limit, nowMs);
      if (purpose === 'check') return this.#admit(scope, permitsLeft, expiresMs, nowMs);
      if (Atomics.compareExchange(this.#words64, word, grant, grant - 1n) !== grant) continue;
      const takenMs = this.#clock.monotonicMs();
      if (takenMs >= expiresMs || takenMs - nowMs > TAKE_MS_MAX) continue;
      if (
        permitsLeft - 1 ===
        Atomics.load(this.#words32, scope * layout.COUNTED_WORDS32 + layout.LOW_MINUTE)
      ) {
        this.#onLow(scope);
      }
      return this.#admit(scope, permitsLeft - 1, expiresMs, nowMs);
    }
    throw new Error('invariant broken: a permit is taken or rejected in bounded tries');
  }

  #admit(scope: Index, permitsLeft: number, expiresMs: number, nowMs: number): MinuteTake {
    const take = this.#take;
    take.admitted = true;
    take.remaining =
      permitsLeft + Atomics.load(this.#words32, scope * layout.COUNTED_WORDS32 + layout.MINUTE_REMAINING);
    take.resetWallMs = asWallMs(this.#clock.wallMs() + Math.ceil(expiresMs - nowMs) + WEIGHING_MS);
    take.mayAskForMore = false;
    return take;
  }

  #reject(scope: Index, limit: number, nowMs: number): MinuteTake {
    const firstWord = scope * layout.COUNTED_WORDS64;
    const freeMs = Number(Atomics.load(this.#words64, firstWord + layout.MINUTE_FREE_MS));
    const take = this.#take;
    take.admitted = false;
    take.remaining = 0;
    // 1 ms more, because the wall clock rounds down to whole milliseconds.
    take.resetWallMs = asWallMs(this.#clock.wallMs() + Math.max(0, Math.ceil(freeMs - nowMs)) + 1);
    // Ask, unless the lease manager rejects for now, and by the same limit.
    take.mayAskForMore =
      nowMs >= Number(Atomics.load(this.#words64, firstWord + layout.MINUTE_REJECTED_UNTIL_MS)) ||
      limit !== Atomics.load(this.#words32, scope * layout.COUNTED_WORDS32 + layout.MINUTE_REJECTED_LIMIT);
    return take;
  }
}
