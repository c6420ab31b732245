/**
 * Asks and answers as the scripts take and give them: packed arrays of numbers. Pure; main thread.
 */
import { Packr } from 'msgpackr';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { InheritedUse } from '../registry/key-record.js';
import type { HostSpent, LeaseAnswer, LeaseAsk, SubjectView } from './authority.js';
import { MONEY_BASE } from './valkey-lua.js';

/** Plain MessagePack, as the servers' `cmsgpack` reads it: no records, no extensions; its 64-bit integers are below 2^53. */
const packr = new Packr({ useRecords: false, variableMapSize: true, int64AsType: 'number' });

export function packed(value: unknown): Buffer {
  return packr.pack(value);
}

export function unpacked(bytes: Uint8Array): unknown {
  return packr.unpack(bytes);
}

/** Money that was ever put into an account, and what grows with each change of it: as new as the host's copy of the registry. */
export interface Credited {
  readonly totalPicoUnits: PicoUnits;
  readonly version: number;
}

/** High and low part; `amount` may be negative, the low part is not. */
export function moneyPair(amount: bigint): [number, number] {
  const low = ((amount % MONEY_BASE) + MONEY_BASE) % MONEY_BASE;
  return [Number((amount - low) / MONEY_BASE), Number(low)];
}

export function moneyOf(high: number, low: number): PicoUnits {
  return asPicoUnits(BigInt(high) * MONEY_BASE + BigInt(low));
}

export function versioned(figure: HostSpent | Credited | undefined): readonly number[] | false {
  return figure === undefined ? false : [...moneyPair(figure.totalPicoUnits), figure.version];
}

/** What the exchange script reads of one ask. `spent` and `credited` go along where it asks for money, `inherited` for a key that was rotated. */
export function encodeAsk(
  { subject, limits, minute, day, slots, money }: LeaseAsk,
  spent: HostSpent | undefined,
  credited: Credited | undefined,
  inherited: InheritedUse | undefined,
): unknown {
  return [
    subject,
    minute !== undefined && [
      limits.requestsPerMinute,
      minute.least,
      minute.most,
      minute.forMs,
      minute.returned.flatMap(({ tick, count }) => [tick, count]),
      minute.isStandBy === true,
      minute.order !== undefined && [minute.order.number, minute.order.heardNumber],
    ],
    day !== undefined && [limits.callsPerDay, day.dayNumber, day.used, day.unused, day.least, day.most],
    slots !== undefined && [limits.callsInFlight, slots.outstanding, slots.least, slots.most],
    money !== undefined && [
      ...moneyPair(money.outstanding),
      ...moneyPair(money.least),
      ...moneyPair(money.most),
      versioned(spent),
      versioned(credited),
    ],
    inherited !== undefined && [
      inherited.dayNumber,
      inherited.dayCalls,
      inherited.minuteUsed,
      inherited.takenMs,
    ],
  ];
}

type RawMinute = readonly [number, number, boolean, number, number, number];
type RawDay = readonly [number, number, boolean, number, number];
type RawSlots = readonly [number, number, boolean];
type RawMoney = readonly [number, number, number, number, boolean];
export type RawAnswer = readonly [RawMinute | false, RawDay | false, RawSlots | false, RawMoney | false];

export function decodeAnswer([minute, day, slots, money]: RawAnswer): LeaseAnswer {
  return {
    ...(minute === false
      ? {}
      : {
          minute: {
            granted: minute[0],
            remaining: minute[1],
            elsewhere: minute[2],
            tick: minute[3],
            validMs: minute[4],
            freeInMs: minute[5],
          },
        }),
    ...(day === false
      ? {}
      : {
          day: {
            granted: day[0],
            remaining: day[1],
            elsewhere: day[2],
            dayNumber: day[3],
            endsInMs: day[4],
          },
        }),
    ...(slots === false ? {} : { slots: { granted: slots[0], remaining: slots[1], elsewhere: slots[2] } }),
    ...(money === false
      ? {}
      : {
          money: {
            granted: moneyOf(money[0], money[1]),
            remaining: moneyOf(money[2], money[3]),
            elsewhere: money[4],
          },
        }),
  };
}

export type RawView = readonly [
  minuteUsed: number,
  dayNumber: number,
  dayUsed: number,
  callsInFlight: number,
  outstandingHigh: number,
  outstandingLow: number,
  spentHigh: number,
  spentLow: number,
  toldHigh: number,
  toldLow: number,
];

/** `spentHere` is what the host's store has by now: what of it the server was not told yet, it still has as outstanding. */
export function decodeView(subject: string, view: RawView, spentHere: PicoUnits | undefined): SubjectView {
  const [minuteUsed, dayNumber, dayUsed, callsInFlight, high, low, spentHigh, spentLow, toldHigh, toldLow] =
    view;
  const untold = spentHere === undefined ? 0n : spentHere - moneyOf(toldHigh, toldLow);
  const outstanding = moneyOf(high, low) - (untold < 0n ? 0n : untold);
  return {
    subject,
    minuteUsed,
    dayNumber,
    dayUsed,
    callsInFlight,
    moneyOutstanding: asPicoUnits(outstanding < 0n ? 0n : outstanding),
    spent: asPicoUnits(moneyOf(spentHigh, spentLow) + untold),
  };
}
