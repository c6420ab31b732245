/**
 * Holds what a coordinator has on record of one scope, and decides how it replies to an ask about the scope.
 * lmdb-coordinator.ts makes a ScopeGrants from the scope's row and writes it back. The Lua scripts
 * (valkey-exchange.ts) do the same arithmetic on hashes of the server: change both together. Main thread. All
 * times, also those of ticks, are of the host's monotonic clock.
 *
 * Must hold: the granted permits that weigh are never more than the limit, whatever messages are lost or come
 * twice (test/unit/sharing/lease-laws.test.ts; valkey-coordinator.test.ts compares the replies with those of
 * the scripts). granted-stock.ts has the law of stocks.
 */
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import {
  entriesOf,
  type LeaseAsk,
  type LeaseReply,
  mapStocks,
  type MinuteAsk,
  type MinuteGrant,
  type MinuteView,
  type PeriodOf,
  type PeriodUse,
  type ProcessView,
  type GrantedPermits,
  type ScopeView,
  STOCK_KINDS,
  type StockAsk,
  type StockGrant,
  type StockName,
  type StockView,
  type Stocks,
} from './coordinator.js';
import { assertWhole, GrantedStock, type StockState } from './granted-stock.js';
import { expiryTickOf, grantedOf, SHORT_TICKS, GRANT_TICK_MS, WEIGHING_TICKS } from './grant-policy.js';

/** Stands among nodes for all lives that have ended, and for what was used before the first life. */
const NO_NODE = '';

/** A bucket: the permits that expire in `tick`, by node. They weigh in `tick` and WEIGHING_TICKS more. */
type BucketState = readonly [tick: number, granted: readonly (readonly [node: string, count: number])[]];

/** The permits of the minute. equal-share.ts has one for each scope, without stocks. */
export class MinuteBuckets {
  /** Permits that were granted and not given back, by the tick in which they expire, then by node. */
  readonly #buckets = new Map<number, Map<string, number>>();
  readonly #numbers: Map<string, number>;

  /** `buckets` and `numbers`: of a `state`, or of what was used before anything was granted. */
  constructor(buckets: readonly BucketState[] = [], numbers: ScopeState['numbers'] = []) {
    for (const [tick, granted] of buckets) this.#buckets.set(tick, new Map(granted));
    this.#numbers = new Map(numbers);
  }

  /** The number of each node's last ask (AskOrder), by node. */
  get numbers(): ReadonlyMap<string, number> {
    return this.#numbers;
  }

  /** The buckets that still weigh. */
  state(nowMs: number): BucketState[] {
    const oldest = Math.floor(nowMs / GRANT_TICK_MS) - WEIGHING_TICKS;
    const weighing = [...this.#buckets].filter(([tick]) => tick >= oldest);
    return weighing.map(([tick, bucket]) => [tick, [...bucket].filter(([, count]) => count > 0)]);
  }

  /** What weighs now: of all nodes, or of `node` alone if it is given. */
  view(nowMs: number, node?: string): MinuteView {
    const nowTick = Math.floor(nowMs / GRANT_TICK_MS);
    let [weighing, unexpired] = [0, 0];
    for (const [tick, bucket] of this.#buckets) {
      if (tick + WEIGHING_TICKS < nowTick) continue;
      const count = node === undefined ? totalOf(bucket.values()) : (bucket.get(node) ?? 0);
      weighing += count;
      if (tick >= nowTick) unexpired += count;
    }
    return { weighing, unexpired };
  }

  /**
   * Takes back what `ask` returns and moves what it names as used. Then grants what the ask wants of what
   * remains of the limit. No reply is lost here, so the order of the ask says nothing. (Only the scripts go
   * by it, and test/support/memory-coordinator.ts.)
   */
  reply(node: string, ask: MinuteAsk, nowMs: number): MinuteGrant {
    const { limit } = ask;
    const nowTick = Math.floor(nowMs / GRANT_TICK_MS);
    for (const tick of this.#buckets.keys()) {
      if (tick + WEIGHING_TICKS < nowTick) this.#buckets.delete(tick);
    }
    for (const permits of ask.returned) this.#takeBack(node, permits);
    for (const permits of ask.used ?? []) {
      // Used permits weigh as if granted now with the shortest validity, unless they expire sooner.
      const usedTick = nowTick + SHORT_TICKS;
      if (permits.tick > usedTick) this.#put(node, usedTick, this.#takeBack(node, permits));
    }
    const weighedBefore = this.view(nowMs).weighing;
    const granted = grantedOf(limit - weighedBefore, ask);
    const weighing = weighedBefore + granted;
    const tick = expiryTickOf(nowTick, weighing, limit, ask);
    this.#put(node, tick, granted);
    if (ask.order !== undefined) this.#numbers.set(node, ask.order.number);
    return {
      granted,
      remaining: Math.max(0, limit - weighing),
      heldByOthers: this.view(nowMs).unexpired > this.view(nowMs, node).unexpired,
      tick,
      validMs: (tick + 1) * GRANT_TICK_MS - nowMs,
      freeInMs: this.#freeInMs(weighing, limit, nowMs),
    };
  }

  /** Called when the node's life has ended. Its permits stay counted, because they may have been used. */
  forget(node: string): void {
    this.#numbers.delete(node);
    for (const bucket of this.#buckets.values()) {
      const count = bucket.get(node) ?? 0;
      if (bucket.delete(node)) bucket.set(NO_NODE, (bucket.get(NO_NODE) ?? 0) + count);
    }
  }

  #put(node: string, tick: number, count: number): void {
    if (count === 0) return;
    const bucket = this.#buckets.get(tick) ?? new Map<string, number>();
    bucket.set(node, (bucket.get(node) ?? 0) + count);
    this.#buckets.set(tick, bucket);
  }

  /** Returns how many permits it took back. The others were in a bucket that has no weight any more. */
  #takeBack(node: string, { tick, count }: GrantedPermits): number {
    const bucket = this.#buckets.get(tick);
    const granted = bucket?.get(node) ?? 0;
    const takenBack = Math.min(granted, count);
    if (takenBack > 0) bucket!.set(node, granted - takenBack);
    return takenBack;
  }

  /** In how many ms fewer permits than the limit will weigh; 0 if fewer weigh now. */
  #freeInMs(weighing: number, limit: number, nowMs: number): number {
    let stillWeighing = weighing;
    if (stillWeighing < limit) return 0;
    for (const [tick, bucket] of [...this.#buckets].sort(([first], [second]) => first - second)) {
      stillWeighing -= totalOf(bucket.values());
      if (stillWeighing < limit) return (tick + WEIGHING_TICKS + 1) * GRANT_TICK_MS - nowMs;
    }
    return 0;
  }
}

/** A scope's row in the lease file. */
export interface ScopeState {
  readonly buckets: readonly BucketState[];
  readonly stocks: readonly StockState[];
  /** As MinuteBuckets.numbers. */
  readonly numbers: readonly (readonly [node: string, number: number])[];
}

/** What was used of a scope before anything was granted. */
export interface UsedBefore {
  readonly minuteUsed: number;
  /** How long ago it was counted. */
  readonly ageMs: number;
  readonly stocks: Stocks<PeriodUse>;
}

/** The money of an account: what was ever credited, and what all hosts have spent of that. */
export interface AccountMoney {
  readonly credited: PicoUnits;
  readonly spent: PicoUnits;
}
/** The money of a scope that is no account. */
export const NO_MONEY: AccountMoney = { credited: asPicoUnits(0n), spent: asPicoUnits(0n) };

export class ScopeGrants {
  readonly #readMoney: () => AccountMoney;
  readonly #minute: MinuteBuckets;
  readonly #stocks = new Map<StockName, GrantedStock>();
  /**
   * Stocks of a newer version, which other processes of the host may run. This version has no limit for them,
   * so it neither grants nor shows them, and `state` returns them as they were.
   */
  readonly #newerStocks: StockState[] = [];

  /**
   * `readMoney`: is called for each ask for money, and for a view. May throw, and `reply` or `view` with it.
   */
  constructor(readMoney: () => AccountMoney, minute = new MinuteBuckets()) {
    this.#readMoney = readMoney;
    this.#minute = minute;
  }

  /** The grants of a `state`. Throws if a count of permits or of a stock is damaged. */
  static fromState(state: ScopeState, readMoney: () => AccountMoney): ScopeGrants {
    for (const [tick, granted] of state.buckets) assertWhole(tick, ...granted.map(([, count]) => count));
    const grants = new ScopeGrants(readMoney, new MinuteBuckets(state.buckets, state.numbers));
    for (const row of state.stocks) {
      if (isOfNewerVersion(row)) grants.#newerStocks.push(row);
      else grants.#put(GrantedStock.fromState(row));
    }
    return grants;
  }

  /** The record of a scope of which nothing was granted yet. */
  static fromUse(
    { minuteUsed, ageMs, stocks }: UsedBefore,
    nowMs: number,
    readMoney: () => AccountMoney,
  ): ScopeGrants {
    // `ageMs` is below 0 if the clock was set back since. Then the use counts as new: it weighs too long, not
    // too short.
    const tick = Math.floor((nowMs - Math.max(0, ageMs)) / GRANT_TICK_MS);
    const minute = new MinuteBuckets(minuteUsed > 0 ? [[tick, [[NO_NODE, minuteUsed]]]] : []);
    const grants = new ScopeGrants(readMoney, minute);
    for (const [name, { period, used }] of entriesOf(stocks))
      grants.#put(GrantedStock.fromUse(name, period, BigInt(used), nowMs - Math.max(0, ageMs)));
    return grants;
  }

  /** Plain values for `fromState`, without buckets that have no weight. */
  state(nowMs: number): ScopeState {
    return {
      buckets: this.#minute.state(nowMs),
      stocks: [...Array.from(this.#stocks.values(), (stock) => stock.state), ...this.#newerStocks],
      numbers: [...this.#minute.numbers],
    };
  }

  /**
   * Forgets all nodes but those for which `isAlive` returns true. Permits of a node whose asks have no
   * `order` stay the node's: LeaseManager, the only one that asks for permits in a lease file, gives each ask
   * one.
   */
  keepOnly(isAlive: (node: string) => boolean, nowMs: number): void {
    const nodes = new Set(Array.from(this.#stocks.values(), (stock) => [...stock.nodes]).flat());
    for (const node of this.#minute.numbers.keys()) nodes.add(node);
    for (const node of nodes) if (!isAlive(node)) this.forget(node, nowMs);
  }

  /** Records what the ask reports, and grants. `periodOf`: the periods by the coordinator's calendar. */
  reply(node: string, { minute, stocks }: LeaseAsk, nowMs: number, periodOf: PeriodOf): LeaseReply {
    const replyStock = (ask: StockAsk, name: StockName): StockGrant => {
      const limit = name === 'balance' ? this.#unspent : ask.limit;
      const stock = this.#stocks.get(name) ?? this.#put(new GrantedStock(name));
      return stock.reply(node, limit, ask, nowMs, periodOf(name));
    };
    return {
      ...(minute && { minute: this.#minute.reply(node, minute, nowMs) }),
      ...(stocks && { stocks: mapStocks(stocks, replyStock) }),
    };
  }

  /** `processes`: the nodes of this host to show one by one, with the slots of their gateway processes. */
  view(scope: string, processes: Iterable<readonly [slot: number, node: string]>, nowMs: number): ScopeView {
    const stocks = Array.from(this.#stocks.values(), (stock) => [stock.name, stock.view(nowMs)]);
    return {
      scope,
      minute: this.#minute.view(nowMs),
      stocks: Object.fromEntries(stocks) as Stocks<StockView>,
      processes: Array.from(processes, ([slot, node]) => this.#processOf(slot, node, nowMs)).filter(hasAsked),
      spent: this.#readMoney().spent,
    };
  }

  get #unspent(): bigint {
    const { credited, spent } = this.#readMoney();
    return credited - spent;
  }

  #processOf(slot: number, node: string, nowMs: number): ProcessView {
    const used = Array.from(this.#stocks.values()).flatMap((stock) => {
      const amount = stock.name === 'balance' ? undefined : stock.usedBy(node);
      return amount === undefined ? [] : [[stock.name, amount] as const];
    });
    const number = this.#minute.numbers.get(node) ?? 0;
    return { slot, minute: { ...this.#minute.view(nowMs, node), number }, used: Object.fromEntries(used) };
  }

  /** Called when the node's life has ended: frees its stocks, or counts them as used (see STOCK_KINDS). */
  forget(node: string, nowMs: number): void {
    for (const stock of this.#stocks.values()) stock.forget(node, nowMs);
    this.#minute.forget(node);
  }

  #put(stock: GrantedStock): GrantedStock {
    this.#stocks.set(stock.name, stock);
    return stock;
  }
}

/** Whether the stock has a name that this version does not know. */
function isOfNewerVersion(row: StockState): boolean {
  return Array.isArray(row) && typeof row[0] === 'string' && !Object.hasOwn(STOCK_KINDS, row[0]);
}

function hasAsked({ minute, used }: ProcessView): boolean {
  return minute.weighing > 0 || minute.number > 0 || Object.keys(used).length > 0;
}

function totalOf(counts: Iterable<number>): number {
  let total = 0;
  for (const count of counts) total += count;
  return total;
}
