/**
 * What this node holds of one account, or of one key with limits of its own, and who waits for it. Main thread.
 */
import type { LeaseNeed } from '../channel/lease-channel.js';
import type { AccountIndex, KeyIndex, PicoUnits } from '../core/units.js';
import type { CountedLeases, Leases } from '../ledger/leases.js';
import type { CallsUse } from './calls-use.js';
import type { LeaseReply, LeaseAsk, ScopeLimits } from './coordinator.js';
import type { Denial } from './lease-terms.js';
import type { Wait } from './lease-waits.js';
import { MinuteLease } from './minute-lease.js';
import { MoneyLease, type SpentAccounting } from './money-lease.js';
import { DayLease, SlotsLease } from './stock-leases.js';

/** A refusal is remembered so long: who hammers a refused account costs four exchanges a second. */
const DENIED_MS = 250;

/** An account that was not used for so long is taken to rest. */
const RESTING_MS = 2_000;

/** What a wait still lacks of a scope, from good to bad. */
const LACKS = [
  'nothing',
  /** The coordinator is to be asked. */
  'unasked',
  /** The coordinator has none, and others may give some back. */
  'denied',
  /** Nor is anybody known to give some back. */
  'refused',
] as const;
export type Lack = (typeof LACKS)[number];

export function worse(one: Lack, other: Lack): Lack {
  return LACKS.indexOf(one) > LACKS.indexOf(other) ? one : other;
}

/** What may be promised to waits in one round; what they take is not known until they have tried. */
interface Budget {
  round: number;
  minute: number;
  day: number;
  slots: number;
  money: bigint;
}

export interface ScopeAddress {
  readonly scope: string;
  readonly leases: CountedLeases<number>;
  readonly index: number;
  /** As in force now. */
  readonly limits: () => ScopeLimits;
  /** Undefined for a key. */
  readonly account:
    | { readonly index: AccountIndex; readonly leases: Leases; readonly accounting: SpentAccounting }
    | undefined;
}

export class LeasedScope {
  readonly place: ScopeAddress;
  readonly waits = new Set<Wait>();
  /** A listener said that it runs low. */
  low = false;
  /** What was last wanted and not given might have been, if the coordinator had been asked. */
  isUnknown = false;
  readonly #minute: MinuteLease<number>;
  readonly #day: DayLease<number>;
  readonly #slots: SlotsLease | undefined;
  readonly #money: MoneyLease | undefined;
  readonly #budget: Budget = { round: -1, minute: 0, day: 0, slots: 0, money: 0n };
  #sent: LeaseAsk | undefined;

  constructor(place: ScopeAddress, nowMs: number) {
    const { leases, index, account } = place;
    this.place = place;
    this.#minute = new MinuteLease(leases, index, nowMs);
    this.#day = new DayLease(leases, index, nowMs);
    this.#slots = account && new SlotsLease(account.leases, account.index, nowMs);
    this.#money = account && new MoneyLease(account.leases, account.index, account.accounting, nowMs);
  }

  /**
   * What to say and what to want of the coordinator now; undefined where that is nothing. `all` says also what it knows. `number` grows
   * from exchange to exchange.
   */
  ask(nowMs: number, all: boolean, number: number): LeaseAsk | undefined {
    const limits = this.place.limits();
    let minutes = 0;
    let calls = 0;
    const holds: PicoUnits[] = [];
    for (const { need } of this.waits) {
      if (need.kind === 'minute') {
        minutes += 1;
      } else {
        calls += 1;
        holds.push(need.hold);
      }
    }
    // Who gets a permit of the minute asks for its admission next: both leave in one exchange.
    calls += minutes;
    const { low } = this;
    this.low = false;
    const minute = limits.requestsPerMinute === 0 ? undefined : this.#minute.ask(minutes, low, nowMs, number);
    const day = limits.callsPerDay === 0 ? undefined : this.#day.ask(calls, low, nowMs, all);
    const slots = limits.callsInFlight === 0 ? undefined : this.#slots?.ask(calls, low, all);
    const money = this.#money?.ask(holds, low, all);
    if (minute === undefined && day === undefined && slots === undefined && money === undefined)
      return undefined;
    this.#sent = {
      scope: this.place.scope,
      limits,
      ...(minute === undefined ? {} : { minute }),
      ...(day === undefined ? {} : { day }),
      ...(slots === undefined ? {} : { slots }),
      ...(money === undefined ? {} : { money }),
    };
    return this.#sent;
  }

  /** The response to the last ask, which left at `sentMs`. */
  take(reply: LeaseReply, sentMs: number, nowMs: number): void {
    const sent = this.#sent;
    if (sent === undefined) return;
    const { minute, day, slots, money } = reply;
    this.isUnknown = reply.isUnknown === true;
    if (minute !== undefined && sent.minute !== undefined) {
      this.#minute.take(minute, sent.minute.most > 0, sent.limits.requestsPerMinute, sentMs, nowMs);
    }
    if (day !== undefined && sent.day !== undefined) this.#day.take(day, sent.day, sentMs, nowMs);
    if (slots !== undefined && sent.slots !== undefined) this.#slots?.take(slots, sent.slots, sentMs, nowMs);
    if (money !== undefined && sent.money !== undefined) this.#money?.take(money, sent.money, sentMs, nowMs);
    this.#sent = undefined;
  }

  /** Promises what the wait needs, once in a round; or says what it lacks. */
  promise({ need, sinceMs }: Wait, round: number, dayNumber: number, nowMs: number): Lack {
    const budget = this.#budgetOf(round, dayNumber, nowMs);
    const limits = this.place.limits();
    if (need.kind === 'minute') {
      if (limits.requestsPerMinute === 0) return 'nothing';
      if (budget.minute < 1) return lackOf(this.#minute, sinceMs, nowMs);
      budget.minute -= 1;
      return 'nothing';
    }
    let lack: Lack = 'nothing';
    if (limits.callsPerDay > 0 && budget.day < 1) lack = lackOf(this.#day, sinceMs, nowMs);
    if (this.#slots !== undefined && limits.callsInFlight > 0 && budget.slots < 1) {
      lack = worse(lack, lackOf(this.#slots, sinceMs, nowMs));
    }
    if (this.#money !== undefined && budget.money < need.hold) {
      // Less was denied than this hold needs, or more: then it has not been asked for.
      const isDenied = need.hold >= this.#money.deniedPicoUnits;
      lack = worse(lack, isDenied ? lackOf(this.#money, sinceMs, nowMs) : 'unasked');
    }
    if (lack !== 'nothing') return lack;
    budget.day -= 1;
    budget.slots -= 1;
    budget.money -= need.hold;
    return 'nothing';
  }

  /** The wait was refused: the like is not asked again for a moment, and what was too little is given back for others. */
  refuse(need: LeaseNeed, nowMs: number): void {
    const untilMs = nowMs + DENIED_MS;
    if (need.kind === 'minute') {
      if (this.#minute.denial !== undefined) this.#minute.refuse(untilMs);
      return;
    }
    if (this.#day.denial !== undefined) this.#day.deniedUntilMs = untilMs;
    if (this.#slots?.denial !== undefined) this.#slots.deniedUntilMs = untilMs;
    if (this.#money?.denial !== undefined) {
      this.#money.deniedUntilMs = untilMs;
      this.#money.giveBack();
    }
  }

  /** Gives back what lies idle, `isAlone` of the minute alone, which runs out; true where the coordinator should hear of it now. */
  look(nowMs: number, isAlone: boolean): boolean {
    const minute = this.#minute.look(nowMs);
    if (isAlone) return minute;
    const day = this.#day.look(nowMs);
    const slots = this.#slots?.look(nowMs) ?? false;
    const money = this.#money?.look(nowMs) ?? false;
    const isDue = minute || day || slots || money;
    // One ask tells that an account has come to rest, not one for each of its resources.
    if (isDue && this.waits.size === 0 && this.#minute.idleMs(nowMs) >= RESTING_MS) this.giveBackAll(nowMs);
    return isDue;
  }

  /** See `MoneyLease.owe`. */
  owe(amount: PicoUnits): void {
    this.#money?.owe(amount);
  }

  /** What no call holds of the money: somebody else wants it. */
  giveBackMoney(): void {
    this.#money?.giveBack();
  }

  /** The process ends: all that is unused. */
  giveBackAll(nowMs: number): void {
    this.#minute.giveBack(nowMs);
    this.#day.giveBack();
    this.#slots?.giveBack();
    this.#money?.giveBack();
  }

  /** What calls use of an account now; undefined of a key. */
  get callsUse(): CallsUse | undefined {
    const { scope: subject, account } = this.place;
    if (account === undefined || this.#money === undefined) return undefined;
    return {
      account: subject,
      callsInFlight: account.leases.inFlightOf(account.index),
      held: this.#money.inUse,
      minuteUnused: this.#minute.unused,
      ...this.#day.unused,
    };
  }

  /** Nothing is held, nothing is to be said, nobody waits: it can be forgotten. */
  get isEmpty(): boolean {
    return (
      this.waits.size === 0 &&
      this.#minute.isEmpty &&
      this.#day.isEmpty &&
      (this.#slots?.isEmpty ?? true) &&
      (this.#money?.isEmpty ?? true)
    );
  }

  #budgetOf(round: number, dayNumber: number, nowMs: number): Budget {
    const budget = this.#budget;
    if (budget.round === round) return budget;
    budget.round = round;
    budget.minute = this.#minute.left(nowMs);
    budget.day = this.#day.left(dayNumber);
    budget.slots = this.#slots?.left ?? 0;
    budget.money = this.#money?.left ?? 0n;
    return budget;
  }
}

function lackOf(
  { denial, deniedUntilMs }: { readonly denial: Denial | undefined; readonly deniedUntilMs: number },
  sinceMs: number,
  nowMs: number,
): Lack {
  if (nowMs < deniedUntilMs) return 'refused';
  if (denial === undefined || denial.sentMs < sinceMs) return 'unasked';
  return denial.heldByOthers ? 'denied' : 'refused';
}

/*
 * The accounts and keys of which this node holds something, or for which somebody waits. Bounded by the accounts and keys of the
 * ledger; one that has come to rest is forgotten. Main thread.
 */

export interface ScopeAddresses {
  /** Where the leases of an account, or of a key, are; undefined for one that is not known. */
  readonly placeOfAccount: (account: AccountIndex) => ScopeAddress | undefined;
  readonly placeOfKey: (key: KeyIndex) => ScopeAddress | undefined;
}

export class LeasedScopes {
  readonly #places: ScopeAddresses;
  readonly #accounts = new Map<AccountIndex, LeasedScope>();
  readonly #keys = new Map<KeyIndex, LeasedScope>();

  constructor(places: ScopeAddresses) {
    this.#places = places;
  }

  get size(): number {
    return this.#accounts.size + this.#keys.size;
  }

  account(account: AccountIndex, nowMs: number): LeasedScope | undefined {
    return this.#accounts.get(account) ?? open(account, this.#accounts, this.#places.placeOfAccount, nowMs);
  }

  /** Undefined where nothing is held of it and nobody waits. */
  findAccount(account: AccountIndex): LeasedScope | undefined {
    return this.#accounts.get(account);
  }

  key(key: KeyIndex, nowMs: number): LeasedScope | undefined {
    return this.#keys.get(key) ?? open(key, this.#keys, this.#places.placeOfKey, nowMs);
  }

  *[Symbol.iterator](): Iterator<LeasedScope> {
    yield* this.#accounts.values();
    yield* this.#keys.values();
  }

  forget({ place }: LeasedScope): void {
    if (place.account === undefined) this.#keys.delete(place.index as KeyIndex);
    else this.#accounts.delete(place.account.index);
  }
}

function open<Index extends number>(
  index: Index,
  scopes: Map<Index, LeasedScope>,
  placeOf: (index: Index) => ScopeAddress | undefined,
  nowMs: number,
): LeasedScope | undefined {
  const place = placeOf(index);
  if (place === undefined) return undefined;
  const scope = new LeasedScope(place, nowMs);
  scopes.set(index, scope);
  return scope;
}
