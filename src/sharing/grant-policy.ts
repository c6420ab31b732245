/**
 * How much a coordinator grants, and for how long: constants and arithmetic that all coordinators share. The
 * Lua scripts take the constants from here (valkey-lua.ts) and do the arithmetic a second time
 * (valkey-stocks.ts). Pure; main thread.
 *
 * Must hold: a grant is between `least` and `most` and never more than what is left, or it is nothing. Tests:
 * test/unit/sharing/grant-policy.test.ts; valkey-coordinator.test.ts compares the scripts with it (random
 * asks).
 */
import { invariant } from '../core/errors.js';
import { ceilDiv, maxOf, minOf } from '../core/units.js';
import type { MinuteAsk, Wanted } from './coordinator.js';

/** The coordinator cuts its time into ticks, and counts permits by the tick in which they expire. */
export const TICK_MS = 600;
/** A permit weighs in the tick of its expiry and in so many more: a minute at least after its last use. */
export const WEIGHING_TICKS = 60_000 / TICK_MS;
invariant(Number.isInteger(WEIGHING_TICKS), 'a minute is a whole number of ticks');

/**
 * The validity for a busy account: to the end of the next tick, 0.6 to 1.2 s. Each further tick would cost
 * one percent of the throughput; less would leave slow networks no time to use a permit.
 */
export const SHORT_TICKS = 1;
/** The validity for a quiet account, some 24 s: renewed at a half, its leases outlast a takeover. */
export const LONG_TICKS = 40;
/** Long validity is for accounts of which 1 / QUIET_PART weighs at most: so much can lie idle. */
export const QUIET_PART = 2;
/** A node gets 1 / SHARE of what is left, so the next node finds some; a node that needs more asks again. */
export const SHARE = 4;

/** The last tick in which a grant may be used. `weighing`: permits that weigh, the grant's included. */
export function expiryTickOf(
  nowTick: number,
  weighing: number,
  limit: number,
  { forMs, isFallback = false }: Pick<MinuteAsk, 'forMs' | 'isFallback'>,
): number {
  if (!isFallback && weighing * QUIET_PART > limit) return nowTick + SHORT_TICKS;
  return nowTick + Math.min(LONG_TICKS, Math.max(SHORT_TICKS, ceilDiv(forMs, TICK_MS)));
}

/** How many of `left` are granted: none if `least` is not there. */
export function shareOf(left: number, { least, most }: Wanted<number>): number {
  if (most <= 0 || left < Math.max(1, least)) return 0;
  return Math.min(most, Math.max(least, ceilDiv(left, SHARE)));
}

/** How much of the `left` of a stock is granted: nothing if `least` is not there. */
export function stockShareOf(left: bigint, { least, most }: Wanted<bigint>): bigint {
  if (most <= 0n || left <= 0n || left < least) return 0n;
  const share = (left + BigInt(SHARE) - 1n) / BigInt(SHARE);
  return minOf(most, maxOf(least, share));
}
