/**
 * What an coordinator lends upon an ask: pure arithmetic, so that all coordinators decide alike. Main thread.
 */
import { invariant } from '../core/errors.js';
import { ceilDiv } from '../core/units.js';
import type { MinuteAsk, Wanted } from './coordinator.js';

/** The coordinator's time is cut into ticks; permits of the minute are counted by the tick in which they expire. */
export const TICK_MS = 600;
/** A permit weighs in the tick of its expiry and in so many after it: at least a minute after it could last be used. */
export const WEIGHING_TICKS = 60_000 / TICK_MS;
invariant(Number.isInteger(WEIGHING_TICKS), 'a minute is a whole number of ticks');

/**
 * Up to the end of the tick after this one, 0.6 to 1.2 s: what a busy account gets. Each tick more would take one percent of the
 * throughput, each less leaves slow networks no time to use a permit.
 */
export const SHORT_TICKS = 1;
/** Some 16 s: a slow account then asks four times a minute rather than at each request. */
export const LONG_TICKS = 27;
/** An account that uses less than this part of its limit gets long validity: at most so much can lie idle at a node. */
export const QUIET_PART = 4;
/** Of what is left, a node gets this part: the next one who asks finds some, and who needs more asks again. */
export const SHARE = 4;

/** The last tick in which a grant may be used, for an account of which `weighing` permits count, those of the grant included. */
export function expiryTickOf(
  nowTick: number,
  weighing: number,
  limit: number,
  { forMs, isStandBy = false }: Pick<MinuteAsk, 'forMs' | 'isStandBy'>,
): number {
  if (!isStandBy && weighing * QUIET_PART > limit) return nowTick + SHORT_TICKS;
  return nowTick + Math.min(LONG_TICKS, Math.max(SHORT_TICKS, ceilDiv(forMs, TICK_MS)));
}

/** What is granted of `left` permits: nothing where `least` is not there. */
export function shareOf(left: number, { least, most }: Wanted<number>): number {
  if (most <= 0 || left < Math.max(1, least)) return 0;
  return Math.min(most, Math.max(least, ceilDiv(left, SHARE)));
}

/** What is granted of `left` pico-units: nothing where `least` is not there. */
export function moneyShareOf(left: bigint, { least, most }: Wanted<bigint>): bigint {
  if (most <= 0n || left <= 0n || left < least) return 0n;
  const share = (left + BigInt(SHARE) - 1n) / BigInt(SHARE);
  const wanted = share > least ? share : least;
  return most < wanted ? most : wanted;
}
