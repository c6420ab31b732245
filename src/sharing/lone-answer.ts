/**
 * What a node answers its own calls with while the authority cannot be reached. Pure; main thread.
 */
import { asPicoUnits } from '../core/units.js';
import type { LeaseAnswer, LeaseAsk, MinuteAsk, MinuteGrant } from './authority.js';
import type { Lent } from './reserve.js';

/** Below those of the own share: permits that the server lent to the stand-by, and that are not returned. */
const STAND_BY_TICK = Number.MIN_SAFE_INTEGER;

/** Permits of the own share have ticks below 0, and are none that the server knows. */
export function withoutOwnTicks(ask: LeaseAsk): LeaseAsk {
  const { minute } = ask;
  if (minute === undefined || minute.returned.every(({ tick }) => tick >= 0)) return ask;
  const own: MinuteAsk = { ...minute, returned: minute.returned.filter(({ tick }) => tick >= 0) };
  return { ...ask, minute: own };
}

/**
 * Of the minute by the share where there is one (`own`), else by what is set aside. Where that is too little: to be told that there is
 * none would be wrong, for there may be some, and only the server knows.
 */
export function loneAnswer(ask: LeaseAsk, own: LeaseAnswer | undefined, lent: Lent | undefined): LeaseAnswer {
  const { minute, day, slots, money } = ask;
  const minuteGrant = minute && minuteOf(minute, own?.minute, lent?.minute);
  const dayGranted = lent?.day?.count ?? 0;
  const slotsGranted = lent?.slots ?? 0;
  const moneyGranted = lent?.money ?? 0n;
  const isUnknown =
    (minute !== undefined && own === undefined && minute.least > minuteGrant!.granted) ||
    (day !== undefined && day.least > dayGranted) ||
    (slots !== undefined && slots.least > slotsGranted) ||
    (money !== undefined && money.least > moneyGranted);
  return {
    ...(minuteGrant === undefined ? {} : { minute: minuteGrant }),
    ...(day === undefined
      ? {}
      : { day: { ...countOf(dayGranted), dayNumber: lent?.day?.dayNumber ?? day.dayNumber, endsInMs: 0 } }),
    ...(slots === undefined ? {} : { slots: countOf(slotsGranted) }),
    ...(money === undefined
      ? {}
      : { money: { granted: asPicoUnits(moneyGranted), remaining: asPicoUnits(0n), elsewhere: true } }),
    ...(isUnknown ? { isUnknown } : {}),
  };
}

function minuteOf({ forMs }: MinuteAsk, own: MinuteGrant | undefined, lent: Lent['minute']): MinuteGrant {
  if (own !== undefined) return { ...own, tick: -1 - own.tick, elsewhere: false };
  const { count, validMs } = lent ?? { count: 0, validMs: forMs };
  return { ...countOf(count), tick: STAND_BY_TICK, validMs, freeInMs: 0 };
}

function countOf(granted: number): { granted: number; remaining: number; elsewhere: boolean } {
  return { granted, remaining: 0, elsewhere: true };
}
