/**
 * Asks and replies as the packed arrays of the Lua scripts, and the names of all keys at the server that
 * hosts share. valkey-partition.ts encodes and decodes with this file; valkey-server.ts and
 * registry-server.ts take keys from it. Pure; main thread.
 *
 * Must hold: arrays have the order, and objects the names, in which valkey-stocks.ts, valkey-exchange.ts and
 * valkey-scripts.ts read and write them (test/unit/sharing/valkey-coordinator.test.ts, random asks and
 * views). Codes, keys and partitions never change: servers have them on record. A damaged amount is no reply
 * (test/unit/sharing/valkey-damage.test.ts). What a newer version has on record is no damage.
 */
import { Packr } from 'msgpackr';
import { asPicoUnits, maxOf, type PicoUnits } from '../core/units.js';
import type { InheritedUse } from '../registry/key-record.js';
import {
  type CountedName,
  entriesOf,
  type VersionedTotal,
  type LeaseAsk,
  type LeaseReply,
  type MinuteAsk,
  type MinuteGrant,
  periodUsesOf,
  type ProcessView,
  type ScopeView,
  type StockAsk,
  type StockGrant,
  type Stocks,
} from './coordinator.js';
import { MONEY_BASE } from './valkey-lua.js';

/** Plain MessagePack, because the server's `cmsgpack` knows no extensions. 64-bit integers are below 2^53. */
const packr = new Packr({ useRecords: false, variableMapSize: true, int64AsType: 'number' });

export function packed(value: unknown): Buffer {
  return packr.pack(value);
}

export function unpacked(bytes: Uint8Array): unknown {
  return packr.unpack(bytes);
}

/**
 * Names of the stocks in the scripts (STOCKS_LUA). Servers have them on record: never change one. The balance
 * has none, because its amounts take two numbers (valkey-lua.ts).
 */
export const STOCK_CODES: Readonly<Record<CountedName, string>> = {
  calls_in_flight: 'f',
  tokens_per_minute: 'w',
  calls_per_day: 'dc',
  tokens_per_day: 'dt',
  spend_per_day: 'ds',
  calls_per_month: 'mc',
  tokens_per_month: 'mt',
  spend_per_month: 'ms',
};
const STOCK_NAME_OF_CODE = new Map(
  Object.entries(STOCK_CODES).map(([name, code]) => [code, name as CountedName]),
);

/**
 * The values of the stocks of a record, by name. An unknown code comes from a newer version, which other
 * hosts run: its stock is left out, because this version has no limit for it.
 */
function byStockName<Row extends readonly [code: string, ...number[]], Value>(
  rows: readonly Row[],
  valueOf: (row: Row) => Value,
): Stocks<Value> {
  const named = rows.flatMap((row): [CountedName, Value][] => {
    const name = STOCK_NAME_OF_CODE.get(row[0]);
    return name === undefined ? [] : [[name, valueOf(row)]];
  });
  return Object.fromEntries(named);
}

/** The entries of `stocks` but the balance. */
export function countedOf<Value>(stocks: Stocks<Value>): [CountedName, Value][] {
  return entriesOf(stocks).filter((entry): entry is [CountedName, Value] => entry[0] !== 'balance');
}

/** An amount as high × 10^9 + low, as valkey-lua.ts has it. `low` is never negative. */
export type RawAmount = readonly [high: number, low: number];

export function moneyPair(amount: bigint): RawAmount {
  const low = ((amount % MONEY_BASE) + MONEY_BASE) % MONEY_BASE;
  return [Number((amount - low) / MONEY_BASE), Number(low)];
}

/** The inverse of `moneyPair`. */
export function moneyOf(high: number, low: number): PicoUnits {
  return asPicoUnits(BigInt(high) * MONEY_BASE + BigInt(low));
}

/** A total as the scripts take it. */
type VersionedRow = readonly [high: number, low: number, version: number];
/** What a host has spent of a scope; false if it has spent nothing, true if its record is damaged. */
export type SpentRow = VersionedRow | boolean;

/** The total as the scripts take it; false if it is undefined. */
export function versioned(total: VersionedTotal | undefined): VersionedRow | false {
  return total === undefined ? false : [...moneyPair(total.totalPicoUnits), total.version];
}

/** A StockAsk as `grant_stock` in valkey-stocks.ts takes it; the counts are used, unused, least, most. */
type RawStockAsk = readonly [code: string, limit: number, period: number, ...counts: number[]];

/** The ask for money as `grant_money` there takes it: unused, least, most, and what the host reports. */
type RawMoneyAsk = readonly [...RawAmount, ...RawAmount, ...RawAmount, ...(VersionedRow | false)[]];

/** One ask as EXCHANGE_SCRIPT takes it. What is left out is absent. */
export interface RawAsk {
  readonly scope: string;
  readonly minute?: MinuteAsk;
  readonly stocks?: readonly RawStockAsk[];
  readonly money?: RawMoneyAsk;
  /** What a rotated key inherited. */
  readonly inherited?: Pick<InheritedUse, 'minuteUsed' | 'takenMs'> & { readonly stocks: readonly object[] };
}

/** Encodes one ask. `spent` and `credited` are sent with a balance; `inherited`: of a rotated key. */
export function encodeAsk(
  { scope, minute, stocks = {} }: LeaseAsk,
  spent: VersionedTotal | undefined,
  credited: VersionedTotal | undefined,
  inherited: InheritedUse | undefined,
): RawAsk {
  const counted = countedOf(stocks);
  const { balance } = stocks;
  return {
    scope,
    ...(minute && { minute }),
    ...(counted.length > 0 && { stocks: counted.map(([name, ask]) => encodeStock(name, ask)) }),
    ...(balance && {
      money: [
        ...moneyPair(balance.unused),
        ...moneyPair(balance.least),
        ...moneyPair(balance.most),
        versioned(spent),
        versioned(credited),
      ],
    }),
    ...(inherited && {
      inherited: {
        minuteUsed: inherited.minuteUsed,
        takenMs: inherited.takenMs,
        stocks: inheritedStocks(inherited),
      },
    }),
  };
}

/** A rotated key inherits no tokens of the minute. */
function inheritedStocks(inherited: InheritedUse): object[] {
  const stocks = countedOf(periodUsesOf(inherited, inherited.quotas));
  return stocks.map(([name, { period, used }]) => ({ code: STOCK_CODES[name], period, used }));
}

function encodeStock(name: CountedName, { limit, period, used, unused, least, most }: StockAsk): RawStockAsk {
  return [STOCK_CODES[name], Number(limit), period, ...[used, unused, least, most].map(Number)];
}

/** A StockGrant as `grant_stock` returns it: granted, remaining, heldByOthers, period, freeInMs. */
type RawStockGrant = readonly [number, number, boolean, period: number, freeInMs: number];
type RawMoneyGrant = readonly [...granted: RawAmount, ...remaining: RawAmount, heldByOthers: boolean];

/** Has what the ask named. The stocks are in the order of the ask's counted stocks. */
export interface RawReply {
  readonly minute?: MinuteGrant;
  readonly stocks?: readonly RawStockGrant[];
  readonly money?: RawMoneyGrant;
}

/**
 * Returns what `decode` returns, which is no text. If `decode` throws, returns a text that says why: if a row
 * of the server is damaged, the reply may have something else in place of a number.
 */
export function decodable<Decoded>(decode: () => Decoded): Decoded | string {
  try {
    return decode();
  } catch (error) {
    return String(error);
  }
}

/** The reply to `ask`. Throws if an amount of a stock or of money is no whole number: see `decodable`. */
export function decodeReply(
  { stocks = {} }: LeaseAsk,
  { minute, stocks: rows, money }: RawReply,
): LeaseReply {
  const replies = countedOf(stocks).map(([name], index) => {
    const [granted, remaining, heldByOthers, period, freeInMs] = rows![index]!;
    return [name, { granted: BigInt(granted), remaining: BigInt(remaining), heldByOthers, period, freeInMs }];
  });
  return {
    ...(minute && { minute }),
    stocks: {
      ...(Object.fromEntries(replies) as LeaseReply['stocks']),
      ...(money && { balance: balanceGrant(money) }),
    },
  };
}

function balanceGrant([high, low, remainingHigh, remainingLow, heldByOthers]: RawMoneyGrant): StockGrant {
  const [granted, remaining] = [moneyOf(high, low), moneyOf(remainingHigh, remainingLow)];
  return { granted, remaining, heldByOthers, period: 0, freeInMs: 0 };
}

/** The reply of VIEW_SCRIPT for one scope. */
export interface RawView extends Pick<ScopeView, 'minute'> {
  readonly processes: readonly (Omit<ProcessView, 'used'> & {
    readonly used: readonly (readonly [code: string, used: number])[];
  })[];
  readonly stocks: readonly (readonly [code: string, period: number, used: number, unused: number])[];
  readonly outstanding: RawAmount;
  readonly spent: RawAmount;
  readonly reported: RawAmount; // what the host alone has reported as spent
}

/**
 * Decodes a view. `spentHere`: what the host has spent by its store; undefined if nothing. At the server the
 * part of it that was not yet reported still counts as outstanding. Throws as `decodeReply`.
 */
export function decodeView(scope: string, view: RawView, spentHere: PicoUnits | undefined): ScopeView {
  const { minute, processes, stocks, spent, reported } = view;
  const unreported = spentHere === undefined ? 0n : spentHere - moneyOf(...reported);
  const outstanding = moneyOf(...view.outstanding) - maxOf(unreported, 0n);
  return {
    scope,
    minute,
    processes: processes.map(({ used, ...process }) => ({
      ...process,
      used: byStockName(used, ([, amount]) => BigInt(amount)),
    })),
    stocks: {
      ...byStockName(stocks, ([, period, used, unused]) => ({
        period,
        used: BigInt(used),
        unused: BigInt(unused),
      })),
      balance: { period: 0, used: 0n, unused: maxOf(outstanding, 0n) },
    },
    spent: asPicoUnits(moneyOf(...spent) + unreported),
  };
}

/**
 * The partition of a scope, by FNV-1a with 32 bits: an even spread, the same on all hosts. With another hash,
 * the scopes of a running server would not be found.
 */
export function partitionOf(scope: string, partitions: number): number {
  let hash = 0x811c9dc5;
  for (let position = 0; position < scope.length; position++) {
    hash = Math.imul(hash ^ scope.charCodeAt(position), 0x01000193);
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
 *     {ns:0}:registry:claims  hash    host → how new its copy is (registry-reseed.ts), while there is none
 *     {ns:0}:registry:seeder  text    the host that has the permission to seed
 */
export function registryKeys(namespace: string) {
  const prefix = `${tagOf(namespace, 0)}:registry`;
  return {
    state: prefix,
    candidates: `${prefix}:claims`,
    seeder: `${prefix}:seeder`,
    logOf: (epoch: string) => `${prefix}:log:${epoch}`,
    rowsOf: (epoch: string) => `${prefix}:rows:${epoch}`,
  };
}

/** The coordinator's keys of a partition; valkey-lua.ts says what is in them. `of`: the two of a scope. */
export function coordinatorKeys(namespace: string, partition: number) {
  const tag = tagOf(namespace, partition);
  return {
    meta: `${tag}:meta`,
    nodes: `${tag}:nodes`,
    awaited: `${tag}:awaited`,
    heldBy: (place: string) => `${tag}:held:${place}`,
    of: (scope: string) => [`${tag}:s:${scope}`, `${tag}:m:${scope}`] as const,
  };
}
