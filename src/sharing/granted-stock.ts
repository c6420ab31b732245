/**
 * What a coordinator knows of one stock of one scope: who was granted how much, and what was used of it.
 * `ScopeGrants` has one for each stock that was asked for, and `LmdbCoordinator` keeps its state in the lease
 * file. Main thread.
 *
 * Must hold: the arithmetic is that of `answer_stock` in valkey-lua.ts, so that hosts and processes get the
 * same grants. `state` only grows at its end, because files of a former version are read. Test:
 * test/unit/sharing/valkey-coordinator.test.ts (random asks are answered as the reference does).
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
import { stockShareOf, TICK_MS, WEIGHING_TICKS } from './grant-policy.js';

/** What one node has reported: used in the period, and granted but not used. In the unit of the stock. */
interface Held {
  readonly used: bigint;
  readonly unused: bigint;
}

/** A tuple, because each ask reads and writes it. The lease file returns an amount as number or bigint. */
export type StockState = readonly [
  name: StockName,
  period: number,
  usedBefore: bigint | number,
  nodes: readonly (readonly [node: string, used: bigint | number, unused: bigint | number])[],
  window: readonly (readonly [tick: number, used: bigint | number])[],
  /** Absent in a row that a former version has written. */
  unknownBefore?: bigint | number,
];

/** Throws RangeError unless all are whole numbers. */
export function assertWhole(...numbers: readonly unknown[]): void {
  for (const number of numbers)
    if (!Number.isSafeInteger(number)) throw new RangeError(`${String(number)} is no whole number`);
}

export class GrantedStock {
  readonly name: StockName;
  #period = 0;
  /** Used in the period by lives that have ended. */
  #usedBefore = 0n;
  /** Granted to ended lives, which did not report whether they used it. It counts as used. */
  #unknownBefore = 0n;
  readonly #nodes = new Map<string, Held>();
  /** For a window: the use, by the tick in which the coordinator heard of it. */
  readonly #window = new Map<number, bigint>();

  constructor(name: StockName, period = 0, usedBefore = 0n, unknownBefore = 0n) {
    this.name = name;
    this.#period = period;
    this.#usedBefore = usedBefore;
    this.#unknownBefore = unknownBefore;
  }

  /** From what `state` returned. Throws if that is damaged. */
  static fromState([name, period, usedBefore, nodes, window, unknownBefore = 0n]: StockState): GrantedStock {
    if (!Object.hasOwn(STOCK_KINDS, name)) throw new RangeError(`there is no stock ${name}`);
    assertWhole(period, ...window.map(([tick]) => tick));
    const stock = new GrantedStock(name, period, BigInt(usedBefore), BigInt(unknownBefore));
    for (const [node, used, unused] of nodes)
      stock.#nodes.set(node, { used: BigInt(used), unused: BigInt(unused) });
    for (const [tick, used] of window) stock.#window.set(tick, BigInt(used));
    return stock;
  }

  /** A stock of which `used` was used up to `atMs`, and nothing granted yet. */
  static fromUse(name: StockName, period: number, used: bigint, atMs: number): GrantedStock {
    if (STOCK_KINDS[name] !== 'window') return new GrantedStock(name, period, used);
    const stock = new GrantedStock(name);
    stock.#weigh(used, atMs);
    return stock;
  }

  /** Plain values for `fromState`. */
  get state(): StockState {
    const nodes = Array.from(this.#nodes, ([node, { used, unused }]) => [node, used, unused] as const);
    return [this.name, this.#period, this.#usedBefore, nodes, [...this.#window], this.#unknownBefore];
  }

  get nodes(): Iterable<string> {
    return this.#nodes.keys();
  }

  /**
   * Records what `ask` reports, and grants what it wants of what is left of `limit`. `current`: the period by
   * the coordinator's calendar. A period too far ahead of it was a mistake of a clock. If the stock is of
   * one, what was counted then counts for now. If the ask is of one, nothing is recorded: what is on record
   * of the node is never less than what it holds. `nowMs`: the time by which the coordinator counts ticks.
   */
  reply(node: string, limit: bigint, ask: StockAsk, nowMs: number, current: number): StockGrant {
    if (this.#period > current + PERIODS_AHEAD_MAX) this.#period = current;
    if (ask.period > current + PERIODS_AHEAD_MAX) {
      const period = Math.max(this.#period, current);
      return { granted: 0n, remaining: 0n, heldByOthers: true, period, freeInMs: 0 };
    }
    if (ask.period > this.#period) {
      this.#period = ask.period;
      this.#usedBefore = 0n;
      this.#unknownBefore = 0n;
      this.#nodes.clear();
    }
    const { used, unused } = ask.period === this.#period ? ask : { used: 0n, unused: 0n };
    const known = this.#nodes.get(node);
    // Of a node without a record all use was reported before: it had nothing to use, and no call in flight.
    if (known !== undefined) this.#weigh(used - known.used, nowMs);
    this.#nodes.set(node, { used, unused });
    const left = limit - this.#outstanding(nowMs);
    const granted = stockShareOf(left, ask);
    this.#nodes.set(node, { used, unused: unused + granted });
    // If a provider has reported more than calls held, calls in flight may use more than is left as unused.
    if (unused + granted === 0n && used === 0n) this.#nodes.delete(node);
    return {
      granted,
      remaining: maxOf(left - granted, 0n),
      heldByOthers: [...this.#nodes].some(([holder, held]) => holder !== node && held.unused > 0n),
      period: this.#period,
      freeInMs: granted === 0n ? this.#freeInMs(maxOf(ask.least, 1n) - left, nowMs) : 0,
    };
  }

  /** The node's life has ended: see StockKind. */
  forget(node: string, nowMs: number): void {
    const held = this.#nodes.get(node);
    if (held === undefined) return;
    this.#nodes.delete(node);
    if (STOCK_KINDS[this.name] === 'period') {
      this.#usedBefore += held.used;
      this.#unknownBefore += held.unused;
    } else this.#weigh(held.unused, nowMs);
  }

  /** See `ProcessView.used`. */
  usedBy(node: string): bigint | undefined {
    return this.#nodes.get(node)?.used;
  }

  view(nowMs: number): StockView {
    const held = [...this.#nodes.values()];
    const unused = sum(held.map((node) => node.unused)) + this.#unknownBefore;
    return { period: this.#period, used: this.#outstanding(nowMs) - unused, unused };
  }

  /** Counts what was used toward the limit from now on; of other kinds than a window, it does nothing. */
  #weigh(used: bigint, nowMs: number): void {
    if (STOCK_KINDS[this.name] !== 'window' || used <= 0n) return;
    const tick = Math.floor(nowMs / TICK_MS);
    this.#window.set(tick, (this.#window.get(tick) ?? 0n) + used);
  }

  /** Used and held by all. */
  #outstanding(nowMs: number): bigint {
    const oldest = Math.floor(nowMs / TICK_MS) - WEIGHING_TICKS;
    for (const tick of this.#window.keys()) if (tick < oldest) this.#window.delete(tick);
    const isWindow = STOCK_KINDS[this.name] === 'window';
    const nodes = Array.from(this.#nodes.values(), ({ used, unused }) => (isWindow ? unused : used + unused));
    return this.#usedBefore + this.#unknownBefore + sum(nodes) + sum(this.#window.values());
  }

  /** When `missing` of the window, oldest first, has no weight any more; 0 if it never has so much. */
  #freeInMs(missing: bigint, nowMs: number): number {
    if (missing <= 0n) return 0;
    let left = missing;
    for (const [tick, used] of [...this.#window].sort(([first], [second]) => first - second)) {
      left -= used;
      if (left <= 0n) return (tick + WEIGHING_TICKS + 1) * TICK_MS - nowMs;
    }
    return 0;
  }
}

function sum(amounts: Iterable<bigint>): bigint {
  let total = 0n;
  for (const amount of amounts) total += amount;
  return total;
}
