/**
 * What is set aside of one scope for the time when the coordinator cannot be reached: of the minute, the day, places for calls in
 * flight and money, one part in as many as share. Main thread.
 *
 * It is held by a node of its own at the coordinator (fallback quota.ts), so what is said of it there is this amount, or more.
 */
import { asPicoUnits, ceilDiv } from '../core/units.js';
import type { LeaseReply, LeaseAsk, MinuteAsk, ReturnedPermits } from './coordinator.js';
import { LONG_TICKS, SHARE, TICK_MS } from './grant-policy.js';
import { VALIDITY_MARGIN_MS } from './minute-lease.js';

/*
 * What of a scope is for calls alone, for a while, because they lacked it: each resource by itself, so that an account at the limit
 * of its minute has still something of its day and its money set aside. Main thread.
 */

/** What was given back for others stays theirs for so long. */
const RELEASED_MS = 2_000;

export const RESOURCES = ['minute', 'day', 'slots', 'money'] as const;
export type Resource = (typeof RESOURCES)[number];

export class FallbackReleases {
  readonly #untilMs: Record<Resource, number> = { minute: 0, day: 0, slots: 0, money: 0 };

  /** Calls asked the coordinator, which answered so. */
  note(ask: LeaseAsk, reply: LeaseReply, nowMs: number): void {
    for (const resource of RESOURCES) {
      const most = ask[resource]?.most ?? 0;
      const granted = reply[resource]?.granted ?? 0;
      if (most > 0 && granted <= 0) this.#untilMs[resource] = nowMs + RELEASED_MS;
    }
  }

  has(resource: Resource, nowMs: number): boolean {
    return nowMs < this.#untilMs[resource];
  }
}

/** Permits that are set aside are renewed so long before they expire: longer than an exchange takes at the most. */
const RENEW_MS = 8_000;
/** The longest validity there is. */
const VALID_MS = LONG_TICKS * TICK_MS;

/** At least so much of what is counted, and else what calls needed lately: an account that may do a million a day is not granted them. */
const PERMITS_LEAST = 60;
const CALLS_LEAST = 1_000;
const SLOTS_LEAST = 64;
/** Calls ask for the permits of two seconds; what is set aside is for the validity of its own. */
const PERMITS_TIMES = 8;

interface Permits extends ReturnedPermits {
  readonly expiresMs: number;
}

/** What is given of the reserve; undefined where it was not asked for. */
export interface Granted {
  readonly minute: { readonly count: number; readonly validMs: number } | undefined;
  readonly day: { readonly dayNumber: number; readonly count: number } | undefined;
  readonly slots: number | undefined;
  readonly money: bigint | undefined;
}

export class FallbackQuota {
  /** The last ask of calls that were served: what resources there are, and their limits. */
  #need: LeaseAsk;
  readonly #parts: number;
  servedMs: number;
  #permits: Permits | undefined;
  /** Replaced by newer ones, to be returned. */
  #replaced: Permits[] = [];
  #dayNumber = 0;
  #calls = 0;
  #slots = 0;
  #money = 0n;
  /** What the coordinator could still lend to anybody when it last said so. */
  #left = { minute: 0, day: 0, slots: 0, money: 0n };
  #asked: LeaseAsk | undefined;
  /** What calls need of each at the most, as they asked. */
  readonly #most = { minute: PERMITS_LEAST, day: CALLS_LEAST, slots: SLOTS_LEAST };
  readonly #releases = new FallbackReleases();

  constructor(need: LeaseAsk, shares: number, nowMs: number) {
    this.#need = need;
    // Where one node has it all, half of it is set aside: the other half is what calls are served from.
    this.#parts = Math.max(2, shares);
    this.servedMs = nowMs;
  }

  /**
   * Calls were answered by the coordinator: `answer` is to `ask`. What they lack is given back with the next ask; true where there is some
   * of it here. An ask that leaves out a resource says nothing of it.
   */
  serve(ask: LeaseAsk, reply: LeaseReply, nowMs: number): boolean {
    const { money = ask.money } = this.#need;
    // One that only reports says nothing of what calls cost.
    const isSmaller = ask.money?.most === 0n;
    this.#need = { ...this.#need, ...ask, ...(isSmaller && money !== undefined ? { money } : {}) };
    this.servedMs = nowMs;
    const { minute, day, slots } = ask;
    if (minute !== undefined && minute.most > 0)
      this.#most.minute = Math.max(PERMITS_LEAST, minute.most * PERMITS_TIMES);
    if (day !== undefined) this.#most.day = Math.max(CALLS_LEAST, day.used);
    if (slots !== undefined) this.#most.slots = Math.max(SLOTS_LEAST, slots.outstanding * 2);
    this.#releases.note(ask, reply, nowMs);
    return RESOURCES.some((resource) => this.#releases.has(resource, nowMs) && this.#has(resource, nowMs));
  }

  holds(nowMs: number): boolean {
    return RESOURCES.some((resource) => this.#has(resource, nowMs));
  }

  /** The coordinator has nothing of it on record, or soon will have none. */
  get isEmpty(): boolean {
    return this.#calls === 0 && this.#slots === 0 && this.#money === 0n && this.#permits === undefined;
  }

  /** Not yet told of: permits that newer ones replace. */
  get returns(): boolean {
    return this.#replaced.length > 0;
  }

  /** To tell what is set aside and to ask for what is missing of its part; `all`: for nothing, and all of it is given back. */
  ask(nowMs: number, all: boolean): LeaseAsk {
    const { scope: subject, limits, minute, day, slots, money } = this.#need;
    const isReleased = (resource: Resource): boolean => all || this.#releases.has(resource, nowMs);
    if (isReleased('minute')) this.#replace();
    if (isReleased('day')) this.#calls = 0;
    if (isReleased('slots')) this.#slots = 0;
    if (isReleased('money')) this.#money = 0n;
    const want = (resource: 'day' | 'slots', held: number): { least: number; most: number } => {
      const part = isReleased(resource) ? 0 : this.#partOf(held, this.#left[resource], this.#most[resource]);
      return part > held ? { least: 1, most: part - held } : { least: 0, most: 0 };
    };
    this.#calls = Math.min(this.#calls, this.#partOf(this.#calls, this.#left.day, this.#most.day));
    this.#slots = Math.min(this.#slots, this.#partOf(this.#slots, this.#left.slots, this.#most.slots));
    const moneyPart = this.#moneyPart();
    if (moneyPart < this.#money) this.#money = moneyPart;
    const missing = asPicoUnits(
      isReleased('money') || moneyPart <= this.#money ? 0n : moneyPart - this.#money,
    );
    const ask: LeaseAsk = {
      scope: subject,
      limits,
      ...(minute === undefined || limits.requestsPerMinute === 0
        ? {}
        : { minute: this.#minuteAsk(nowMs, isReleased('minute')) }),
      ...(day === undefined
        ? {}
        : {
            day: {
              dayNumber: this.#dayNumber,
              used: 0,
              unused: this.#calls,
              ...want('day', this.#calls),
            },
          }),
      ...(slots === undefined ? {} : { slots: { outstanding: this.#slots, ...want('slots', this.#slots) } }),
      ...(money === undefined
        ? {}
        : {
            money: {
              outstanding: asPicoUnits(this.#money),
              least: asPicoUnits(missing > 0n ? 1n : 0n),
              most: missing,
            },
          }),
    };
    this.#asked = ask;
    return ask;
  }

  /** What was granted since the ask left stays granted: grants are added to what is there now. Returns whether more should be asked for now. */
  take({ minute, day, slots, money }: LeaseReply, sentMs: number): boolean {
    const asked = this.#asked;
    const knewLeft = this.#left;
    if (minute !== undefined && minute.granted > 0) {
      this.#replace();
      const { tick, granted: count, validMs } = minute;
      this.#permits = { tick, count, expiresMs: sentMs + validMs - VALIDITY_MARGIN_MS };
    }
    if (day !== undefined) {
      if (day.dayNumber !== this.#dayNumber) this.#calls = 0;
      this.#dayNumber = day.dayNumber;
      this.#calls += day.granted;
    }
    this.#slots += slots?.granted ?? 0;
    this.#money += money?.granted ?? 0n;
    this.#left = {
      minute: minute?.remaining ?? knewLeft.minute,
      day: day?.remaining ?? knewLeft.day,
      slots: slots?.remaining ?? knewLeft.slots,
      money: money?.remaining ?? knewLeft.money,
    };
    // The first response is the first to say how much there is.
    const wantedNothing =
      asked !== undefined &&
      (asked.minute?.most ?? 0) + (asked.day?.most ?? 0) + (asked.slots?.most ?? 0) === 0 &&
      (asked.money?.most ?? 0n) === 0n;
    return wantedNothing && this.isEmpty && this.#hasLeft;
  }

  /** Nothing is set aside any more, whatever the coordinator has on record. */
  drop(): void {
    this.#permits = undefined;
    this.#replaced = [];
    this.#calls = 0;
    this.#slots = 0;
    this.#money = 0n;
  }

  /** Gives calls what they ask for, as far as it goes. */
  lend({ minute, day, slots, money }: LeaseAsk, dayNumber: number, nowMs: number): Granted {
    return {
      minute: minute && this.#lendMinute(minute, nowMs),
      day: day && {
        dayNumber: this.#dayNumber,
        count: this.#dayNumber === dayNumber ? this.#lendCalls(day.least, day.most) : 0,
      },
      slots: slots && this.#lendSlots(slots.least, slots.most),
      money: money && this.#lendMoney(money.least, money.most),
    };
  }

  get #hasLeft(): boolean {
    const { minute, day, slots, money } = this.#left;
    return minute > 0 || day > 0 || slots > 0 || money > 0n;
  }

  /** Of what is here and what the coordinator has left. Where that is less than half of what is here, others lack it. */
  #partOf(held: number, left: number, most: number): number {
    return left * 2 < held ? 0 : Math.min(most, Math.floor((held + left) / this.#parts));
  }

  /** Where less is left than calls ask for at once, they could not be served for what lies here. */
  #moneyPart(): bigint {
    const { money: left } = this.#left;
    if (left * 2n < this.#money || left < (this.#need.money?.most ?? 0n)) return 0n;
    return (this.#money + left) / BigInt(this.#parts);
  }

  #minuteAsk(nowMs: number, released: boolean): MinuteAsk {
    const { count = 0, expiresMs = 0 } = this.#permits ?? {};
    const { minute: left } = this.#left;
    // Newer permits take the place of older ones, so no more than is granted at once.
    const own = this.#partOf(count, left, this.#most.minute);
    const part = Math.min(own, ceilDiv(left, SHARE));
    const isScarce = own < count;
    if (isScarce || expiresMs <= nowMs) this.#replace();
    const returned = this.#replaced.map(({ tick, count: permits }) => ({ tick, count: permits }));
    this.#replaced = [];
    const renews = expiresMs - nowMs < RENEW_MS || part > count + count / 4;
    const most = released || isScarce || !renews ? 0 : part;
    return { least: most > 0 ? 1 : 0, most, forMs: VALID_MS, isFallback: true, returned };
  }

  #replace(): void {
    if (this.#permits !== undefined && this.#permits.count > 0) this.#replaced.push(this.#permits);
    this.#permits = undefined;
  }

  #has(resource: Resource, nowMs: number): boolean {
    if (resource === 'day') return this.#calls > 0;
    if (resource === 'slots') return this.#slots > 0;
    if (resource === 'money') return this.#money > 0n;
    return this.#permits !== undefined && this.#permits.count > 0 && this.#permits.expiresMs > nowMs;
  }

  #lendMinute({ least, most }: MinuteAsk, nowMs: number): { count: number; validMs: number } {
    const permits = this.#permits;
    if (permits === undefined || permits.expiresMs <= nowMs) return { count: 0, validMs: 0 };
    const count = given(permits.count, least, most);
    this.#permits = { ...permits, count: permits.count - count };
    return { count, validMs: permits.expiresMs - nowMs };
  }

  #lendCalls(least: number, most: number): number {
    const count = given(this.#calls, least, most);
    this.#calls -= count;
    return count;
  }

  #lendSlots(least: number, most: number): number {
    const count = given(this.#slots, least, most);
    this.#slots -= count;
    return count;
  }

  #lendMoney(least: bigint, most: bigint): bigint {
    if (most <= 0n || this.#money < least) return 0n;
    const amount = most < this.#money ? most : this.#money;
    this.#money -= amount;
    return amount;
  }
}

function given(held: number, least: number, most: number): number {
  return held < least ? 0 : Math.min(held, most);
}
