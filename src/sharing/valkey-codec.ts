/**
 * Asks and replies in the form of the Lua scripts, packed arrays of numbers, and the names of all keys at the
 * server that hosts share. `ValkeyPartition` encodes and decodes with it. Pure; main thread.
 */
import { Packr } from 'msgpackr';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { InheritedUse } from '../registry/key-record.js';
import type { HostSpent, LeaseReply, LeaseAsk, ScopeView, SlotsGrant } from './coordinator.js';
import { MONEY_BASE } from './valkey-lua.js';

/** Plain MessagePack for the server's `cmsgpack`: no records or extensions; 64-bit integers below 2^53. */
const packr = new Packr({ useRecords: false, variableMapSize: true, int64AsType: 'number' });

export function packed(value: unknown): Buffer {
  return packr.pack(value);
}

export function unpacked(bytes: Uint8Array): unknown {
  return packr.unpack(bytes);
}

/** How much was ever credited to an account, by this host's copy of the registry. */
export interface Credited {
  readonly totalPicoUnits: PicoUnits;
  readonly version: number;
}

/** The high and the low part of an amount. The amount may be negative, the low part is not. */
export function moneyPair(amount: bigint): [number, number] {
  const low = ((amount % MONEY_BASE) + MONEY_BASE) % MONEY_BASE;
  return [Number((amount - low) / MONEY_BASE), Number(low)];
}

export function moneyOf(high: number, low: number): PicoUnits {
  return asPicoUnits(BigInt(high) * MONEY_BASE + BigInt(low));
}

export function versioned(total: HostSpent | Credited | undefined): readonly number[] | false {
  return total === undefined ? false : [...moneyPair(total.totalPicoUnits), total.version];
}

/**
 * One ask for the exchange script. `spent` and `credited` go along if it asks for money, `inherited` if the
 * scope is a key that was rotated.
 */
export function encodeAsk(
  { scope, limits, minute, day, slots, money }: LeaseAsk,
  spent: HostSpent | undefined,
  credited: Credited | undefined,
  inherited: InheritedUse | undefined,
): unknown {
  return [
    scope,
    minute !== undefined && [
      limits.requestsPerMinute,
      minute.least,
      minute.most,
      minute.forMs,
      minute.returned.flatMap(({ tick, count }) => [tick, count]),
      minute.isFallback === true,
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

type RawCount = readonly [granted: number, remaining: number, heldByOthers: boolean];
type RawMinute = readonly [...RawCount, tick: number, validMs: number, freeInMs: number];
type RawDay = readonly [...RawCount, dayNumber: number, endsInMs: number];
type RawMoney = readonly [number, number, number, number, boolean];
export type RawReply = readonly [RawMinute | false, RawDay | false, RawCount | false, RawMoney | false];

export function decodeReply([minute, day, slots, money]: RawReply): LeaseReply {
  return {
    ...(minute && {
      minute: { ...countOf(minute), tick: minute[3], validMs: minute[4], freeInMs: minute[5] },
    }),
    ...(day && { day: { ...countOf(day), dayNumber: day[3], endsInMs: day[4] } }),
    ...(slots && { slots: countOf(slots) }),
    ...(money && {
      money: {
        granted: moneyOf(money[0], money[1]),
        remaining: moneyOf(money[2], money[3]),
        heldByOthers: money[4],
      },
    }),
  };
}

function countOf([granted, remaining, heldByOthers]: RawCount | RawMinute | RawDay): SlotsGrant {
  return { granted, remaining, heldByOthers };
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

/** `spentHere` is by the host's store; the server counts what of it was not reported as outstanding. */
export function decodeView(scope: string, view: RawView, spentHere: PicoUnits | undefined): ScopeView {
  const [minuteUsed, dayNumber, dayUsed, callsInFlight, high, low, spentHigh, spentLow, toldHigh, toldLow] =
    view;
  const unreported = spentHere === undefined ? 0n : spentHere - moneyOf(toldHigh, toldLow);
  const outstanding = moneyOf(high, low) - (unreported < 0n ? 0n : unreported);
  return {
    scope,
    minuteUsed,
    dayNumber,
    dayUsed,
    callsInFlight,
    moneyOutstanding: asPicoUnits(outstanding < 0n ? 0n : outstanding),
    spent: asPicoUnits(moneyOf(spentHigh, spentLow) + unreported),
  };
}

/** The partition of a scope, by FNV-1a with 32 bits: an even spread, the same on all hosts. */
export function partitionOf(scope: string, partitions: number): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < scope.length; at++) {
    hash = Math.imul(hash ^ scope.charCodeAt(at), 0x01000193);
  }
  return (hash >>> 0) % partitions;
}

/** The hash tag of all keys that a script works on: they lie on one server of a Cluster. */
export function tagOf(namespace: string, partition: number): string {
  return `{${namespace}:${partition}}`;
}

/**
 * The keys of the registry, all in partition 0.
 *
 *     {ns:0}:registry         hash    epoch, version and history of the registry
 *     {ns:0}:registry:log:E   stream  of epoch E: version-0 → rows that the transaction wrote
 *     {ns:0}:registry:rows:E  hash    of epoch E: row → value, as of the version
 *     {ns:0}:registry:claims  hash    host → how new its copy is, while the server has none
 *     {ns:0}:registry:seeder  text    the host that puts its copy there
 */
export interface RegistryKeys {
  readonly state: string;
  readonly claims: string;
  readonly seeder: string;
  readonly logOf: (epoch: string) => string;
  readonly rowsOf: (epoch: string) => string;
}

export function registryKeys(namespace: string): RegistryKeys {
  const first = `${tagOf(namespace, 0)}:registry`;
  return {
    state: first,
    claims: `${first}:claims`,
    seeder: `${first}:seeder`,
    logOf: (epoch) => `${first}:log:${epoch}`,
    rowsOf: (epoch) => `${first}:rows:${epoch}`,
  };
}

export interface CoordinatorKeys {
  readonly meta: string;
  readonly nodes: string;
  readonly awaited: string;
  readonly heldBy: (place: string) => string;
  /** The two keys of a scope. */
  readonly of: (scope: string) => readonly [string, string];
}

/** The coordinator's keys of a partition; valkey-lua.ts says what they hold. */
export function coordinatorKeys(namespace: string, partition: number): CoordinatorKeys {
  const tag = tagOf(namespace, partition);
  return {
    meta: `${tag}:meta`,
    nodes: `${tag}:nodes`,
    awaited: `${tag}:awaited`,
    heldBy: (place) => `${tag}:held:${place}`,
    of: (scope) => [`${tag}:s:${scope}`, `${tag}:m:${scope}`],
  };
}
