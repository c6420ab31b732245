/**
 * What an coordinator knows of one scope, and how it answers an ask about it: of the reference in memory, of LmdbAuthority between
 * a row and the next. Main thread.
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
  MoneyAsk,
  MoneyGrant,
  SlotsAsk,
  SlotsGrant,
  ScopeView,
} from './coordinator.js';
import { moneyShareOf, shareOf, TICK_MS } from './grant-policy.js';
import { type BucketState, MinuteBuckets } from './minute-buckets.js';

interface DayHeld {
  readonly used: number;
  readonly unused: number;
}

/** By node; short, because a row of it is read and written at each ask. A packed amount comes back as a number or as a bigint, by its size. */
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
  /** Since the minute of `minuteUsed` ended. */
  readonly ageMs: number;
}

/** Holds what was used before there were nodes. */
const NO_NODE = '';

export class ScopeGrants {
  credited = asPicoUnits(0n);
  /** By stores that are not told of in asks. */
  spent = asPicoUnits(0n);
  readonly #minute = new MinuteBuckets();
  #dayNumber = 0;
  /** Of nodes whose life has ended. */
  #dayUsedBefore = 0;
  readonly #days = new Map<string, DayHeld>();
  readonly #slots = new Map<string, number>();
  readonly #money = new Map<string, PicoUnits>();
  readonly #hostSpent = new Map<string, HostSpent>();

  /** What `state` told of a scope, with no money known. */
  static of({ buckets, dayNumber, dayUsedBefore, days, slots, money }: ScopeState): ScopeGrants {
    const leases = new ScopeGrants();
    for (const [tick, granted] of buckets) leases.#minute.put(tick, granted);
    leases.#dayNumber = dayNumber;
    leases.#dayUsedBefore = dayUsedBefore;
    for (const [node, used, unused] of days) leases.#days.set(node, { used, unused });
    for (const [node, count] of slots) leases.#slots.set(node, count);
    for (const [node, picoUnits] of money) leases.#money.set(node, asPicoUnits(BigInt(picoUnits)));
    return leases;
  }

  /** A scope of which nothing was granted yet. */
  static after({ dayNumber, dayCalls, minuteUsed, ageMs }: UsedBefore, nowMs: number): ScopeGrants {
    const leases = new ScopeGrants();
    leases.#dayNumber = dayNumber;
    leases.#dayUsedBefore = dayCalls;
    // A clock that was set back since makes it younger than it is, which errs on refusing.
    const tick = Math.floor((nowMs - Math.max(0, ageMs)) / TICK_MS);
    if (minuteUsed > 0) leases.#minute.put(tick, [[NO_NODE, minuteUsed]]);
    return leases;
  }

  /** Plain values, for `of`; without what weighs no more. */
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

  answer(node: string, host: string, ask: LeaseAsk, nowMs: number, wallMs: WallMs): LeaseReply {
    const { limits, minute, day, slots, money } = ask;
    return {
      ...(minute === undefined
        ? {}
        : { minute: this.#minute.answer(node, limits.requestsPerMinute, minute, nowMs) }),
      ...(day === undefined ? {} : { day: this.#day(node, limits.callsPerDay, day, wallMs) }),
      ...(slots === undefined ? {} : { slots: this.#replySlots(node, limits.callsInFlight, slots) }),
      ...(money === undefined ? {} : { money: this.#replyMoney(node, host, money) }),
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

  /** The node's life has ended: its calls of the day stay counted, for how many it used is not known. */
  forget(node: string): void {
    const day = this.#days.get(node);
    if (day !== undefined) this.#dayUsedBefore += day.used + day.unused;
    this.#days.delete(node);
    this.#slots.delete(node);
    this.#money.delete(node);
    this.#minute.forget(node);
  }

  #day(node: string, limit: number, ask: DayAsk, wallMs: WallMs): DayGrant {
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

/** An entry that says nothing is none. */
function keep<Amount>(held: Map<string, Amount>, node: string, amount: Amount, nothing: Amount): void {
  if (amount === nothing) held.delete(node);
  else held.set(node, amount);
}

/*
 * What the store tells of the use of a scope of which nothing is granted yet: by gateways that shared nothing, or before the
 * machine was started again. Main thread.
 */

const NOTHING: UsedBefore = { dayNumber: 0, dayCalls: 0, minuteUsed: 0, ageMs: 0 };

/** Of an account or of a key with limits of its own. Throws `StoreFault`. Two reads, some microseconds. */
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
