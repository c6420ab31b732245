/**
 * How much a coordinator grants, and for how long: constants and arithmetic that all coordinators share.
 * scope-grants.ts and granted-stock.ts call it. The Lua scripts take the constants from here (valkey-lua.ts)
 * and have the same arithmetic (valkey-exchange.ts, valkey-stocks.ts): change both together. Pure.
 *
 * Must hold: a grant is between `least` and `most` and never more than what remains, or it is nothing
 * (test/unit/sharing/valkey-coordinator.test.ts compares the scripts with this file by random asks).
 */
import { invariant } from '../core/errors.js';
import { ceilDiv, maxOf, minOf } from '../core/units.js';
import type { MinuteAsk, Wanted } from './coordinator.js';

/** The coordinator cuts its time into ticks, and counts permits by the tick in which they expire. */
export const GRANT_TICK_MS = 600;
/** A permit weighs in the tick of its expiry and in so many more, so for a minute at least after its use. */
export const WEIGHING_TICKS = 60_000 / GRANT_TICK_MS;
invariant(Number.isInteger(WEIGHING_TICKS), 'a minute is a whole number of ticks');

/**
 * The validity for a busy account: to the end of the next tick, 0.6 to 1.2 s. Each further tick would cost
 * one percent of the throughput. A shorter validity would leave slow networks no time to use a permit.
 */
export const SHORT_TICKS = 1;
/**
 * The validity for a quiet account, some 24 s. Its leases are renewed at half of that, and so outlast the
 * time in which another server takes over.
 */
export const LONG_TICKS = 40;
/** The longest validity: an ask names it, and the coordinator grants that or less. */
export const VALID_MS_MAX = LONG_TICKS * GRANT_TICK_MS;
/** An account is quiet if 1 / QUIET_PART of its limit weighs at most: then so much can lie idle. */
export const QUIET_PART = 2;
/** A node is granted 1 / GRANT_PART of what remains, so that the next one finds some. It may ask again. */
export const GRANT_PART = 4;

/** The last tick in which a grant may be used. `weighing`: permits that weigh, the grant's included. */
export function expiryTickOf(
  nowTick: number,
  weighing: number,
  limit: number,
  { forMs, isFallback = false }: Pick<MinuteAsk, 'forMs' | 'isFallback'>,
): number {
  if (!isFallback && weighing * QUIET_PART > limit) return nowTick + SHORT_TICKS;
  return nowTick + Math.min(LONG_TICKS, Math.max(SHORT_TICKS, ceilDiv(forMs, GRANT_TICK_MS)));
}

/** How many of the `remaining` permits are granted: none if fewer than `least` remain. */
export function grantedOf(remaining: number, { least, most }: Wanted<number>): number {
  if (most <= 0 || remaining < Math.max(1, least)) return 0;
  return Math.min(most, Math.max(least, ceilDiv(remaining, GRANT_PART)));
}

/** How much of the `remaining` of a stock is granted: nothing if less than `least` remains. */
export function grantedStockOf(remaining: bigint, { least, most }: Wanted<bigint>): bigint {
  if (most <= 0n || remaining <= 0n || remaining < least) return 0n;
  const part = (remaining + BigInt(GRANT_PART) - 1n) / BigInt(GRANT_PART);
  return minOf(most, maxOf(least, part));
}
