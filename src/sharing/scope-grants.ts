/**
 * What a coordinator knows of one scope, and how it replies to an ask about it. `MemoryCoordinator` keeps one
 * for each scope; `LmdbCoordinator` makes one from the scope's row and writes it back. The Lua scripts do the
 * same arithmetic on hashes of the server. Main thread.
 */
import { asPicoUnits, type PicoUnits, type WallMs } from '../core/units.js';
import { dayNumberOf, endOfDay } from '../ledger/day.js';
import type { SpendingRecord } from '../registry/account-record.js';
import type { KeyUseRecord } from '../registry/key-record.js';
import type { Store } from '../store/store.js';
import type {
  DayAsk,
  DayGrant,
  HostSpent,
  LeaseReply,
  LeaseAsk,
  MinuteAsk,
  MinuteGrant,
  MoneyAsk,
  MoneyGrant,
  ReturnedPermits,
  SlotsAsk,
  SlotsGrant,
  ScopeView,
} from './coordinator.js';
import { expiryTickOf, moneyShareOf, shareOf, TICK_MS, WEIGHING_TICKS } from './grant-policy.js';

type BucketState = readonly [tick: number, granted: readonly (readonly [node: string, count: number])[]];

/** The permits of a scope's minute that were granted, by the tick in which they expire and by node. */
class MinuteBuckets {
  /** By tick of expiry, then by node: permits granted and not given back. */
  readonly #buckets = new Map<number, Map<string, number>>();
  /** The last grant to each node, which may not know of it. LMDB loses no reply: it is no part of `state`. */
  readonly #lastGrants = new Map<
    string,
    { readonly number: number; readonly tick: number; readonly count: number }
  >();

  /** Puts in what `state` returned, or what was used before anything was granted. */
  put(tick: number, granted: BucketState[1]): void {
    this.#buckets.set(tick, new Map(granted));
  }

  /** The buckets that still weigh. */
  state(nowMs: number): BucketState[] {
    const oldest = Math.floor(nowMs / TICK_MS) - WEIGHING_TICKS;
    const weighing = [...this.#buckets].filter(([tick]) => tick >= oldest);
    return weighing.map(([tick, bucket]) => [tick, [...bucket].filter(([, count]) => count > 0)]);
  }

  weighing(nowMs: number): number {
    return this.#weighingAt(Math.floor(nowMs / TICK_MS));
  }

  /** Takes back what `ask` returns, and grants what it wants of what is left of the limit. */
  reply(node: string, limit: number, ask: MinuteAsk, nowMs: number): MinuteGrant {
    const nowTick = Math.floor(nowMs / TICK_MS);
    for (const tick of this.#buckets.keys()) {
      if (tick + WEIGHING_TICKS < nowTick) this.#buckets.delete(tick);
    }
    const last = this.#lastGrants.get(node);
    if (last !== undefined && ask.order !== undefined && last.number > ask.order.heardNumber) {
      this.#takeBack(node, last);
    } else {
      for (const permits of ask.returned) this.#takeBack(node, permits);
    }
    const before = this.#weighingAt(nowTick);
    const granted = shareOf(limit - before, ask);
    const weighing = before + granted;
    const tick = expiryTickOf(nowTick, weighing, limit, ask);
    if (granted > 0) {
      const bucket = this.#buckets.get(tick) ?? new Map<string, number>();
      bucket.set(node, (bucket.get(node) ?? 0) + granted);
      this.#buckets.set(tick, bucket);
    }
    if (ask.order !== undefined)
      this.#lastGrants.set(node, { number: ask.order.number, tick, count: granted });
    return {
      granted,
      remaining: Math.max(0, limit - weighing),
      heldByOthers: this.#isHeldByOthers(node, nowTick),
      tick,
      validMs: (tick + 1) * TICK_MS - nowMs,
      freeInMs: this.#freeInMs(weighing, limit, nowMs),
    };
  }

  /** The node's life has ended; its last grant stays counted, for it may have been used. */
  forget(node: string): void {
    this.#lastGrants.delete(node);
  }

  /** Never more than the node was granted: what is missing was in a bucket that has no weight any more. */
  #takeBack(node: string, { tick, count }: ReturnedPermits): void {
    const bucket = this.#buckets.get(tick);
    bucket?.set(node, Math.max(0, (bucket.get(node) ?? 0) - count));
  }

  /** When enough has stopped to weigh, the oldest first. */
  #freeInMs(weighing: number, limit: number, nowMs: number): number {
    let left = weighing;
    if (left < limit) return 0;
    for (const [tick, bucket] of [...this.#buckets].sort(([first], [second]) => first - second)) {
      left -= sum(bucket.values());
      if (left < limit) return (tick + WEIGHING_TICKS + 1) * TICK_MS - nowMs;
    }
    return 0;
  }

  #isHeldByOthers(node: string, nowTick: number): boolean {
    for (const [tick, bucket] of this.#buckets) {
      if (tick < nowTick) continue;
      for (const [holder, count] of bucket) if (holder !== node && count > 0) return true;
    }
    return false;
  }

  #weighingAt(nowTick: number): number {
    let weighing = 0;
    for (const [tick, bucket] of this.#buckets) {
      if (tick + WEIGHING_TICKS >= nowTick) weighing += sum(bucket.values());
    }
    return weighing;
  }
}

interface DayHeld {
  readonly used: number;
  readonly unused: number;
}

/**
 * A scope's row in the lease file; short, because each ask reads and writes it. An amount of money comes back
 * from the file as a number or as a bigint, by its size.
 */
export interface ScopeState {
  readonly buckets: readonly BucketState[];
  readonly dayNumber: number;
  readonly dayUsedBefore: number;
  readonly days: readonly (readonly [node: string, used: number, unused: number])[];
  readonly slots: readonly (readonly [node: string, count: number])[];
  readonly money: readonly (readonly [node: string, picoUnits: bigint | number])[];
}

/** What was used of a scope before anything was granted of it. */
export interface UsedBefore {
  readonly dayNumber: number;
  readonly dayCalls: number;
  readonly minuteUsed: number;
  /** How long ago `minuteUsed` was counted. */
  readonly ageMs: number;
}

/** Stands for what was used before there were nodes. */
const NO_NODE = '';

export class ScopeGrants {
  credited = asPicoUnits(0n);
  /** Spent by stores whose total is not in the asks. */
  spent = asPicoUnits(0n);
  readonly #minute = new MinuteBuckets();
  #dayNumber = 0;
  /** Calls of the day of nodes whose life has ended. */
  #dayUsedBefore = 0;
  readonly #days = new Map<string, DayHeld>();
  readonly #slots = new Map<string, number>();
  readonly #money = new Map<string, PicoUnits>();
  readonly #hostSpent = new Map<string, HostSpent>();

  /** From what `state` returned; what is credited and spent has to be set. */
  static of({ buckets, dayNumber, dayUsedBefore, days, slots, money }: ScopeState): ScopeGrants {
    const grants = new ScopeGrants();
    for (const [tick, granted] of buckets) grants.#minute.put(tick, granted);
    grants.#dayNumber = dayNumber;
    grants.#dayUsedBefore = dayUsedBefore;
    for (const [node, used, unused] of days) grants.#days.set(node, { used, unused });
    for (const [node, count] of slots) grants.#slots.set(node, count);
    for (const [node, picoUnits] of money) grants.#money.set(node, asPicoUnits(BigInt(picoUnits)));
    return grants;
  }

  /** For a scope of which nothing was granted yet. */
  static after({ dayNumber, dayCalls, minuteUsed, ageMs }: UsedBefore, nowMs: number): ScopeGrants {
    const grants = new ScopeGrants();
    grants.#dayNumber = dayNumber;
    grants.#dayUsedBefore = dayCalls;
    // If the clock was set back since, the use seems younger than it is, which errs on refusing.
    const tick = Math.floor((nowMs - Math.max(0, ageMs)) / TICK_MS);
    if (minuteUsed > 0) grants.#minute.put(tick, [[NO_NODE, minuteUsed]]);
    return grants;
  }

  /** Plain values for `of`, without buckets that have no weight. */
  state(nowMs: number): ScopeState {
    return {
      buckets: this.#minute.state(nowMs),
      dayNumber: this.#dayNumber,
      dayUsedBefore: this.#dayUsedBefore,
      days: Array.from(this.#days, ([node, { used, unused }]) => [node, used, unused]),
      slots: [...this.#slots],
      money: [...this.#money],
    };
  }

  /** Forgets nodes whose life has ended. */
  keepOnly(isAlive: (node: string) => boolean): void {
    const known = new Set([...this.#days.keys(), ...this.#slots.keys(), ...this.#money.keys()]);
    for (const node of known) if (!isAlive(node)) this.forget(node);
  }

  reply(node: string, host: string, ask: LeaseAsk, nowMs: number, wallMs: WallMs): LeaseReply {
    const { limits, minute, day, slots, money } = ask;
    return {
      ...(minute && { minute: this.#minute.reply(node, limits.requestsPerMinute, minute, nowMs) }),
      ...(day && { day: this.#replyDay(node, limits.callsPerDay, day, wallMs) }),
      ...(slots && { slots: this.#replySlots(node, limits.callsInFlight, slots) }),
      ...(money && { money: this.#replyMoney(node, host, money) }),
    };
  }

  view(scope: string, nowMs: number): ScopeView {
    return {
      scope,
      minuteUsed: this.#minute.weighing(nowMs),
      dayNumber: this.#dayNumber,
      dayUsed: this.#dayOutstanding(),
      callsInFlight: sum(this.#slots.values()),
      moneyOutstanding: this.#moneyOutstanding(),
      spent: this.#spentByAll(),
    };
  }

  /** The node's life has ended. Its calls of the day stay counted, because nobody knows how many it used. */
  forget(node: string): void {
    const day = this.#days.get(node);
    if (day !== undefined) this.#dayUsedBefore += day.used + day.unused;
    this.#days.delete(node);
    this.#slots.delete(node);
    this.#money.delete(node);
    this.#minute.forget(node);
  }

  #replyDay(node: string, limit: number, ask: DayAsk, wallMs: WallMs): DayGrant {
    const dayNumber = Math.max(this.#dayNumber, dayNumberOf(wallMs), ask.dayNumber);
    if (dayNumber > this.#dayNumber) {
      this.#dayNumber = dayNumber;
      this.#dayUsedBefore = 0;
      this.#days.clear();
    }
    const said = ask.dayNumber === dayNumber ? ask : { used: 0, unused: 0 };
    this.#days.set(node, said);
    const left = limit - this.#dayOutstanding();
    const granted = shareOf(left, ask);
    this.#days.set(node, { used: said.used, unused: said.unused + granted });
    return {
      granted,
      remaining: Math.max(0, left - granted),
      heldByOthers: [...this.#days].some(([holder, { unused }]) => holder !== node && unused > 0),
      dayNumber,
      endsInMs: endOfDay(dayNumber) - wallMs,
    };
  }

  #dayOutstanding(): number {
    let outstanding = this.#dayUsedBefore;
    for (const { used, unused } of this.#days.values()) outstanding += used + unused;
    return outstanding;
  }

  #replySlots(node: string, limit: number, ask: SlotsAsk): SlotsGrant {
    this.#slots.set(node, ask.outstanding);
    const left = limit - sum(this.#slots.values());
    const granted = shareOf(left, ask);
    keep(this.#slots, node, ask.outstanding + granted, 0);
    return {
      granted,
      remaining: Math.max(0, left - granted),
      heldByOthers: [...this.#slots].some(([holder, count]) => holder !== node && count > 0),
    };
  }

  #replyMoney(node: string, host: string, ask: MoneyAsk): MoneyGrant {
    const { spent } = ask;
    if (spent !== undefined && spent.version > (this.#hostSpent.get(host)?.version ?? -1)) {
      this.#hostSpent.set(host, spent);
    }
    this.#money.set(node, ask.outstanding);
    const left = this.credited - this.#spentByAll() - this.#moneyOutstanding();
    const granted = asPicoUnits(moneyShareOf(left, ask));
    keep(this.#money, node, asPicoUnits(ask.outstanding + granted), asPicoUnits(0n));
    return {
      granted,
      remaining: asPicoUnits(left - granted > 0n ? left - granted : 0n),
      heldByOthers: [...this.#money].some(([holder, amount]) => holder !== node && amount > 0n),
    };
  }

  #spentByAll(): PicoUnits {
    let spent: bigint = this.spent;
    for (const { totalPicoUnits } of this.#hostSpent.values()) spent += totalPicoUnits;
    return asPicoUnits(spent);
  }

  #moneyOutstanding(): PicoUnits {
    let outstanding = 0n;
    for (const amount of this.#money.values()) outstanding += amount;
    return asPicoUnits(outstanding);
  }
}

function sum(counts: Iterable<number>): number {
  let total = 0;
  for (const count of counts) total += count;
  return total;
}

/** Sets an entry, or deletes it if it would hold nothing. */
function keep<Amount>(held: Map<string, Amount>, node: string, amount: Amount, nothing: Amount): void {
  if (amount === nothing) held.delete(node);
  else held.set(node, amount);
}

const NOTHING: UsedBefore = { dayNumber: 0, dayCalls: 0, minuteUsed: 0, ageMs: 0 };

/**
 * What the store says was used of an account, or of a key with limits of its own, of which nothing is granted
 * yet: by gateways that shared nothing, or before the machine was started again. Throws `StoreFault`. Two
 * reads, some microseconds.
 */
export function usedBefore(
  store: Pick<Store, 'findAccount' | 'findSpending' | 'keys'>,
  scope: string,
  nowMs: WallMs,
): UsedBefore {
  const use = useOf(store, scope);
  if (use === undefined) return NOTHING;
  const { dayNumber, dayCalls, minuteUsed, takenMs } = use;
  return { dayNumber, dayCalls, minuteUsed, ageMs: nowMs - takenMs };
}

function useOf(
  store: Pick<Store, 'findAccount' | 'findSpending' | 'keys'>,
  scope: string,
): SpendingRecord | KeyUseRecord | undefined {
  const account = store.findAccount(scope);
  if (account !== undefined) return store.findSpending(account.index);
  const key = store.keys.find(scope);
  return key === undefined ? undefined : store.keys.findUse(key.index);
}
