/**
 * What this process leases of one account, or of one key with limits of its own, and the requests that wait
 * for it. `LeaseManager` sends the asks of all scopes in one exchange and hands the replies back. Main
 * thread.
 */
import type { LeaseNeed } from '../channel/lease-channel.js';
import type { AccountIndex, KeyIndex, PicoUnits } from '../core/units.js';
import type { CountedLeases, Leases } from '../ledger/leases.js';
import type { LeaseReply, LeaseAsk, ScopeLimits } from './coordinator.js';
import type { Denial } from './lease-terms.js';
import type { Wait } from './lease-waits.js';
import { MinuteLease } from './minute-lease.js';
import type { CallsUse } from './sharing-stats.js';
import { DayLease, MoneyLease, SlotsLease, type SpentAccounting } from './stock-leases.js';

/** A refusal holds for so long: a client that hammers a refused account costs four exchanges a second. */
const DENIED_MS = 250;
/** An account that was not used for so long counts as resting. */
const RESTING_MS = 2_000;

/** What a waiting request still lacks of a scope, from good to bad. */
const LACKS = [
  'nothing',
  /** The coordinator has to be asked. */
  'unasked',
  /** The coordinator has none left, and others may give some back. */
  'denied',
  /** Nobody is known who could give some back either. */
  'refused',
] as const;
export type Lack = (typeof LACKS)[number];

export function worse(one: Lack, other: Lack): Lack {
  return LACKS.indexOf(one) > LACKS.indexOf(other) ? one : other;
}

/** What may still be promised in a round: what waits take of it is unknown until they have tried. */
interface Budget {
  round: number;
  minute: number;
  day: number;
  slots: number;
  money: bigint;
}

/** Which scope it is, and where its leases lie in shared memory. */
export interface ScopeAddress {
  readonly scope: string;
  readonly leases: CountedLeases<number>;
  readonly index: number;
  /** The limits in force now. */
  readonly limits: () => ScopeLimits;
  /** Undefined for a key. */
  readonly account:
    | { readonly index: AccountIndex; readonly leases: Leases; readonly accounting: SpentAccounting }
    | undefined;
}

export class LeasedScope {
  readonly address: ScopeAddress;
  readonly waits = new Set<Wait>();
  /** A listener has used most of what is leased. */
  low = false;
  /** The coordinator could not be asked for what was last wanted and not granted. */
  isUnknown = false;
  readonly #minute: MinuteLease<number>;
  readonly #day: DayLease<number>;
  readonly #slots: SlotsLease | undefined;
  readonly #money: MoneyLease | undefined;
  /** Those three that there are. */
  readonly #stocks: readonly (DayLease<number> | SlotsLease | MoneyLease)[];
  readonly #budget: Budget = { round: -1, minute: 0, day: 0, slots: 0, money: 0n };
  #sent: LeaseAsk | undefined;

  constructor(address: ScopeAddress, nowMs: number) {
    const { leases, index, account } = address;
    this.address = address;
    this.#minute = new MinuteLease(leases, index, nowMs);
    this.#day = new DayLease(leases, index, nowMs);
    this.#slots = account && new SlotsLease(account.leases, account.index, nowMs);
    this.#money = account && new MoneyLease(account.leases, account.index, account.accounting, nowMs);
    this.#stocks = [this.#day, this.#slots, this.#money].filter((stock) => stock !== undefined);
  }

  /**
   * The ask for the next exchange; undefined if there is nothing to say. `all`: say also what the coordinator
   * knows, because it may have forgotten. `number` grows from exchange to exchange, `dayNumber` is today's.
   */
  ask(nowMs: number, dayNumber: number, all: boolean, number: number): LeaseAsk | undefined {
    const limits = this.address.limits();
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
    // A request that gets a permit of the minute needs its admission next: one exchange asks for both.
    calls += minutes;
    const { low } = this;
    this.low = false;
    const minute = limits.requestsPerMinute === 0 ? undefined : this.#minute.ask(minutes, low, nowMs, number);
    const day = limits.callsPerDay === 0 ? undefined : this.#day.ask(calls, low, dayNumber, nowMs, all);
    const slots = limits.callsInFlight === 0 ? undefined : this.#slots?.ask(calls, low, all);
    const money = this.#money?.ask(holds, low, all);
    if (minute === undefined && day === undefined && slots === undefined && money === undefined)
      return undefined;
    this.#sent = {
      scope: this.address.scope,
      limits,
      ...(minute && { minute }),
      ...(day && { day }),
      ...(slots && { slots }),
      ...(money && { money }),
    };
    return this.#sent;
  }

  /** Takes over the reply to the last ask, which left at `sentMs`. */
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

  /** Promises the wait what it needs, once a round, and returns 'nothing'; or returns what it lacks. */
  promise({ need, sinceMs }: Wait, round: number, dayNumber: number, nowMs: number): Lack {
    const budget = this.#budgetOf(round, dayNumber, nowMs);
    const limits = this.address.limits();
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
      // The denial was about a larger hold, so this one has not been asked for yet.
      const isDenied = need.hold >= this.#money.deniedPicoUnits;
      lack = worse(lack, isDenied ? lackOf(this.#money, sinceMs, nowMs) : 'unasked');
    }
    if (lack !== 'nothing') return lack;
    budget.day -= 1;
    budget.slots -= 1;
    budget.money -= need.hold;
    return 'nothing';
  }

  /** A wait was refused: its like is refused for a moment, and money that was too little is given back. */
  refuse(need: LeaseNeed, nowMs: number): void {
    const untilMs = nowMs + DENIED_MS;
    if (need.kind === 'minute') {
      if (this.#minute.denial !== undefined) this.#minute.refuse(untilMs);
      return;
    }
    for (const stock of this.#stocks) if (stock.denial !== undefined) stock.deniedUntilMs = untilMs;
    if (this.#money?.denial !== undefined) this.#money.giveBack();
  }

  /**
   * Gives back what lies idle; returns true if the coordinator should hear of it now. `isAlone`: the process
   * is cut off, so it gives back only the minute, which expires anyway.
   */
  look(nowMs: number, isAlone: boolean): boolean {
    let isDue = this.#minute.look(nowMs);
    if (isAlone) return isDue;
    for (const stock of this.#stocks) isDue = stock.look(nowMs) || isDue;
    // When an account has come to rest, one ask says so for all its resources.
    if (isDue && this.waits.size === 0 && this.#minute.idleMs(nowMs) >= RESTING_MS) this.giveBackAll(nowMs);
    return isDue;
  }

  /** See `MoneyLease.setUncovered`. */
  setUncovered(amount: PicoUnits): void {
    this.#money?.setUncovered(amount);
  }

  /** Gives back the money that no call holds: somebody else wants it. */
  giveBackMoney(): void {
    this.#money?.giveBack();
  }

  /** Gives back all that is unused. */
  giveBackAll(nowMs: number): void {
    this.#minute.giveBack(nowMs);
    for (const stock of this.#stocks) stock.giveBack();
  }

  /** What calls use of an account now; undefined for a key. */
  get callsUse(): CallsUse | undefined {
    const { scope, account } = this.address;
    if (account === undefined || this.#money === undefined) return undefined;
    return {
      account: scope,
      callsInFlight: account.leases.inFlightOf(account.index),
      held: this.#money.inUse,
      minuteUnused: this.#minute.unused,
      ...this.#day.unused,
    };
  }

  /** Nothing is held, nothing has to be said, and nobody waits: the scope can be forgotten. */
  get isEmpty(): boolean {
    return this.waits.size === 0 && this.#minute.isEmpty && this.#stocks.every(({ isEmpty }) => isEmpty);
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

export interface ScopeAddresses {
  /** Undefined for an account that is not known. */
  readonly addressOfAccount: (account: AccountIndex) => ScopeAddress | undefined;
  /** Undefined for a key that is not known. */
  readonly addressOfKey: (key: KeyIndex) => ScopeAddress | undefined;
}

/**
 * The accounts and keys of which this process holds something, or for which a request waits. Bounded by the
 * accounts and keys of the ledger; `LeaseManager` forgets those that have come to rest.
 */
export class LeasedScopes {
  readonly #addresses: ScopeAddresses;
  readonly #accounts = new Map<AccountIndex, LeasedScope>();
  readonly #keys = new Map<KeyIndex, LeasedScope>();

  constructor(addresses: ScopeAddresses) {
    this.#addresses = addresses;
  }

  get size(): number {
    return this.#accounts.size + this.#keys.size;
  }

  account(account: AccountIndex, nowMs: number): LeasedScope | undefined {
    return (
      this.#accounts.get(account) ?? open(account, this.#accounts, this.#addresses.addressOfAccount, nowMs)
    );
  }

  /** Undefined if nothing is held of the account and nobody waits. */
  findAccount(account: AccountIndex): LeasedScope | undefined {
    return this.#accounts.get(account);
  }

  key(key: KeyIndex, nowMs: number): LeasedScope | undefined {
    return this.#keys.get(key) ?? open(key, this.#keys, this.#addresses.addressOfKey, nowMs);
  }

  *[Symbol.iterator](): Iterator<LeasedScope> {
    yield* this.#accounts.values();
    yield* this.#keys.values();
  }

  forget({ address }: LeasedScope): void {
    if (address.account === undefined) this.#keys.delete(address.index as KeyIndex);
    else this.#accounts.delete(address.account.index);
  }
}

function open<Index extends number>(
  index: Index,
  scopes: Map<Index, LeasedScope>,
  addressOf: (index: Index) => ScopeAddress | undefined,
  nowMs: number,
): LeasedScope | undefined {
  const address = addressOf(index);
  if (address === undefined) return undefined;
  const scope = new LeasedScope(address, nowMs);
  scopes.set(index, scope);
  return scope;
}
