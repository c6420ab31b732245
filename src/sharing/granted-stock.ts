/**
 * Holds what a coordinator has on record of one stock of one scope: who was granted how much, and what was
 * used. All resources but permits are stocks; StockKind in coordinator.ts says how the kinds differ.
 * scope-grants.ts has a GrantedStock for each stock that was asked for; lmdb-coordinator.ts writes its
 * `state` to the lease file. Main thread.
 *
 * Must hold: the arithmetic is that of `grant_stock` in valkey-stocks.ts, so that hosts and processes get
 * the same grants (test/unit/sharing/valkey-coordinator.test.ts compares both with random asks). New items of
 * StockState come at its end and may be absent, because a file of this boot may be of a former version.
 */
import { maxOf } from '../core/units.js';
import { PERIODS_AHEAD_MAX } from '../ledger/stocks.js';
import {
  STOCK_KINDS,
  type StockAsk,
  type StockGrant,
  type StockName,
  type StockView,
} from './coordinator.js';
import { grantedStockOf, GRANT_TICK_MS, WEIGHING_TICKS } from './grant-policy.js';

/** What is on record of one node, in the unit of the stock. */
interface NodeRecord {
  readonly used: bigint; // StockAsk.used of the node's last ask
  /** What the node has outstanding: StockAsk.unused of its last ask, and what that ask was granted. */
  readonly unused: bigint;
}

/** A tuple, because each ask writes it, and it is short on disk. LMDB returns amounts as number or bigint. */
export type StockState = readonly [
  name: StockName,
  period: number,
  usedByEnded: bigint | number,
  nodes: readonly (readonly [node: string, used: bigint | number, unused: bigint | number])[],
  window: readonly (readonly [tick: number, used: bigint | number])[],
  unreportedByEnded: bigint | number,
];

/** Throws RangeError unless all arguments are whole numbers. */
export function assertWhole(...numbers: readonly unknown[]): void {
  for (const number of numbers)
    if (!Number.isSafeInteger(number)) throw new RangeError(`${String(number)} is no whole number`);
}

export class GrantedStock {
  readonly name: StockName;
  #period: number; // StockAsk.period; 0 for a stock without a period
  #usedByEnded: bigint; // used in the period by lives that have ended, or before there were leases
  /** What ended lives had outstanding in the period. It counts as used, because they may have used it. */
  #unreportedByEnded: bigint;
  readonly #nodes = new Map<string, NodeRecord>();
  /** What was used of a window, by the tick in which the coordinator heard of it. Empty for other kinds. */
  readonly #useByTick = new Map<number, bigint>();

  constructor(name: StockName, period = 0, usedByEnded = 0n, unreportedByEnded = 0n) {
    this.name = name;
    this.#period = period;
    this.#usedByEnded = usedByEnded;
    this.#unreportedByEnded = unreportedByEnded;
  }

  /** The stock of a `state`. Throws if the state is damaged. */
  static fromState([name, period, usedByEnded, nodes, window, unreported]: StockState): GrantedStock {
    if (!Object.hasOwn(STOCK_KINDS, name)) throw new RangeError(`there is no stock ${name}`);
    assertWhole(period, ...window.map(([tick]) => tick));
    const stock = new GrantedStock(name, period, BigInt(usedByEnded), BigInt(unreported));
    for (const [node, used, unused] of nodes)
      stock.#nodes.set(node, { used: BigInt(used), unused: BigInt(unused) });
    for (const [tick, used] of window) stock.#useByTick.set(tick, BigInt(used));
    return stock;
  }

  /** A stock of which `used` was used at `usedMs`, and nothing granted yet. */
  static fromUse(name: StockName, period: number, used: bigint, usedMs: number): GrantedStock {
    if (STOCK_KINDS[name] !== 'window') return new GrantedStock(name, period, used);
    const stock = new GrantedStock(name);
    stock.#weigh(used, usedMs);
    return stock;
  }

  /** Plain values for `fromState`. */
  get state(): StockState {
    const nodes = Array.from(this.#nodes, ([node, { used, unused }]) => [node, used, unused] as const);
    return [this.name, this.#period, this.#usedByEnded, nodes, [...this.#useByTick], this.#unreportedByEnded];
  }

  get nodes(): Iterable<string> {
    return this.#nodes.keys();
  }

  /**
   * Records what `ask` reports, and grants what it wants of what is left of `limit`. `nowMs`: the time by
   * which the coordinator counts ticks. `currentPeriod`: by the coordinator's calendar; 0 without a period.
   */
  reply(node: string, limit: bigint, ask: StockAsk, nowMs: number, currentPeriod: number): StockGrant {
    // The period on record is too far ahead: a clock was wrong. Its counts count in the current period.
    if (this.#period > currentPeriod + PERIODS_AHEAD_MAX) this.#period = currentPeriod;
    // The node's clock is wrong now. Its report is not recorded, so the record keeps what the node had.
    if (ask.period > currentPeriod + PERIODS_AHEAD_MAX) {
      const period = Math.max(this.#period, currentPeriod);
      return { granted: 0n, remaining: 0n, heldByOthers: true, period, freeInMs: 0 };
    }
    // A new period: nothing of it was used or granted.
    if (ask.period > this.#period) {
      this.#period = ask.period;
      this.#usedByEnded = 0n;
      this.#unreportedByEnded = 0n;
      this.#nodes.clear();
    }
    // A node that still counts in an earlier period reports nothing of this one.
    const { used, unused } = ask.period === this.#period ? ask : { used: 0n, unused: 0n };
    const lastReport = this.#nodes.get(node);
    // A node without a record has reported all its use: it had nothing left, and no call in flight.
    if (lastReport !== undefined) this.#weigh(used - lastReport.used, nowMs);
    // Recorded now, because `#taken` counts it.
    this.#nodes.set(node, { used, unused });
    const remaining = limit - this.#taken(nowMs);
    const granted = grantedStockOf(remaining, ask);
    this.#nodes.set(node, { used, unused: unused + granted });
    // A node that has used some keeps its record: its calls in flight may still use more than they hold.
    if (unused + granted === 0n && used === 0n) this.#nodes.delete(node);
    return {
      granted,
      remaining: maxOf(remaining - granted, 0n),
      heldByOthers: [...this.#nodes].some(([holder, record]) => holder !== node && record.unused > 0n),
      period: this.#period,
      freeInMs: granted === 0n ? this.#freeInMs(maxOf(ask.least, 1n) - remaining, nowMs) : 0,
    };
  }

  /** Called when the node's life has ended. What was outstanding is free, or counts as used (StockKind). */
  forget(node: string, nowMs: number): void {
    const record = this.#nodes.get(node);
    if (record === undefined) return;
    this.#nodes.delete(node);
    if (STOCK_KINDS[this.name] === 'period') {
      this.#usedByEnded += record.used;
      this.#unreportedByEnded += record.unused;
    } else {
      // What is outstanding of a window weighs from now on (reported use does already), else it is free.
      this.#weigh(record.unused, nowMs);
    }
  }

  /** What the node has reported as used in the period; undefined if nothing is on record. */
  usedBy(node: string): bigint | undefined {
    return this.#nodes.get(node)?.used;
  }

  view(nowMs: number): StockView {
    const records = [...this.#nodes.values()];
    const unused = totalOf(records.map((record) => record.unused)) + this.#unreportedByEnded;
    return { period: this.#period, used: this.#taken(nowMs) - unused, unused };
  }

  /** Has `used` weigh from now on, if the stock is a window. If `used` is negative, nothing changes. */
  #weigh(used: bigint, nowMs: number): void {
    if (STOCK_KINDS[this.name] !== 'window' || used <= 0n) return;
    const tick = Math.floor(nowMs / GRANT_TICK_MS);
    this.#useByTick.set(tick, (this.#useByTick.get(tick) ?? 0n) + used);
  }

  /** How much of the limit all lives have used or may use. Drops the ticks of a window that weigh no more. */
  #taken(nowMs: number): bigint {
    const oldest = Math.floor(nowMs / GRANT_TICK_MS) - WEIGHING_TICKS;
    for (const tick of this.#useByTick.keys()) if (tick < oldest) this.#useByTick.delete(tick);
    const isWindow = STOCK_KINDS[this.name] === 'window';
    const nodes = Array.from(this.#nodes.values(), ({ used, unused }) => (isWindow ? unused : used + unused));
    return this.#usedByEnded + this.#unreportedByEnded + totalOf(nodes) + totalOf(this.#useByTick.values());
  }

  /**
   * In how many ms as much use as `missing` will weigh no more; 0 if nothing is missing, or less use weighs.
   * `#taken`, called before, has dropped what weighs no more.
   */
  #freeInMs(missing: bigint, nowMs: number): number {
    if (missing <= 0n) return 0;
    let stillMissing = missing;
    for (const [tick, used] of [...this.#useByTick].sort(([first], [second]) => first - second)) {
      stillMissing -= used;
      if (stillMissing <= 0n) return (tick + WEIGHING_TICKS + 1) * GRANT_TICK_MS - nowMs;
    }
    return 0;
  }
}

function totalOf(amounts: Iterable<bigint>): bigint {
  let total = 0n;
  for (const amount of amounts) total += amount;
  return total;
}
