/**
 * Asks and replies with the four resources of every account by short names and in plain numbers, so that
 * tests of coordinators read easily.
 */
import { Calendar } from '#src/core/calendar.js';
import { asPicoUnits, type PicoUnits } from '#src/core/units.js';
import type {
  Coordinator,
  LeaseAsk,
  LeaseReply,
  MinuteAsk,
  ScopeView,
  StockAsk,
  StockGrant,
  Stocks,
  Wanted,
} from '#src/sharing/coordinator.js';

export interface PlainAsk {
  readonly scope: string;
  /** 0 where they are left out. */
  readonly limits?: {
    readonly requestsPerMinute?: number;
    readonly callsPerDay?: number;
    readonly callsInFlight?: number;
  };
  readonly minute?: Omit<MinuteAsk, 'limit'>;
  /** Day 0: today. */
  readonly day?: Wanted<number> & {
    readonly dayNumber: number;
    readonly used: number;
    readonly unused: number;
  };
  readonly slots?: Wanted<number> & { readonly outstanding: number };
  readonly money?: Wanted<bigint> & { readonly outstanding: bigint };
  readonly more?: Stocks<StockAsk>;
}

interface PlainGrant<Amount> {
  readonly granted: Amount;
  readonly remaining: Amount;
  readonly heldByOthers: boolean;
}

export interface PlainReply extends Pick<LeaseReply, 'minute' | 'isUnknown'> {
  readonly day?: PlainGrant<number> & { readonly dayNumber: number };
  readonly slots?: PlainGrant<number>;
  readonly money?: PlainGrant<PicoUnits>;
  readonly more: Stocks<StockGrant>;
}

const CALENDAR = new Calendar();

export const dayNumberOf = (wallMs: number): number => CALENDAR.dayAt(wallMs).number;

const NONE = { limit: 0n, period: 0, used: 0n, unused: 0n };
const wanted = ({ least, most }: Wanted<number>): Wanted<bigint> => ({
  least: BigInt(least),
  most: BigInt(most),
});

export function askOf(ask: PlainAsk, today = 0): LeaseAsk {
  const { scope, limits = {}, minute, day, slots, money, more } = ask;
  const { requestsPerMinute = 0, callsPerDay = 0, callsInFlight = 0 } = limits;
  const dayStock = day && {
    limit: BigInt(callsPerDay),
    period: day.dayNumber === 0 ? today : day.dayNumber,
    used: BigInt(day.used),
    unused: BigInt(day.unused),
    ...wanted(day),
  };
  return {
    scope,
    ...(minute && { minute: { ...minute, limit: requestsPerMinute } }),
    stocks: {
      ...(dayStock && { calls_per_day: dayStock }),
      ...(slots && {
        calls_in_flight: {
          ...NONE,
          limit: BigInt(callsInFlight),
          unused: BigInt(slots.outstanding),
          ...wanted(slots),
        },
      }),
      ...(money && {
        balance: {
          ...NONE,
          unused: money.outstanding,
          least: money.least,
          most: money.most,
        },
      }),
      ...more,
    },
  };
}

export function plainReply({ minute, isUnknown, stocks = {} }: LeaseReply): PlainReply {
  const { calls_per_day: day, calls_in_flight: slots, balance, ...more } = stocks;
  return {
    ...(minute && { minute }),
    ...(day && { day: { ...countOf(day), dayNumber: day.period } }),
    ...(slots && { slots: countOf(slots) }),
    ...(balance && {
      money: {
        granted: asPicoUnits(balance.granted),
        remaining: asPicoUnits(balance.remaining),
        heldByOthers: balance.heldByOthers,
      },
    }),
    ...(isUnknown && { isUnknown }),
    more,
  };
}

function countOf({ granted, remaining, heldByOthers }: StockGrant): PlainGrant<number> {
  return { granted: Number(granted), remaining: Number(remaining), heldByOthers };
}

/** What the coordinator would tell operators, as the asks above name it. */
export function plainView({ scope, minute, stocks, spent }: ScopeView) {
  const all = (name: keyof Stocks<unknown>): bigint =>
    (stocks[name]?.used ?? 0n) + (stocks[name]?.unused ?? 0n);
  return {
    scope,
    minuteUsed: minute.weighing,
    dayNumber: stocks.calls_per_day?.period ?? 0,
    dayUsed: Number(all('calls_per_day')),
    callsInFlight: Number(all('calls_in_flight')),
    moneyOutstanding: asPicoUnits(all('balance')),
    spent,
  };
}

/** An exchange of plain asks. */
export async function exchangePlain(
  node: Coordinator,
  asks: readonly PlainAsk[],
): Promise<{ readonly wallMs: number; readonly answers: readonly PlainReply[] }> {
  const needsDay = asks.some(({ day }) => day?.dayNumber === 0);
  const today = needsDay ? dayNumberOf((await node.exchange([])).wallMs) : 0;
  const { wallMs, replies } = await node.exchange(asks.map((ask) => askOf(ask, today)));
  return { wallMs, answers: replies.map(plainReply) };
}
