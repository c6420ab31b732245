/**
 * The fallback quota of one scope: a part of its permits, calls of the day, slots and money that is set aside
 * for the time when the coordinator cannot be reached. `FallbackCoordinator` keeps one for each scope that
 * was served lately, sends its asks, and grants calls from it. Main thread.
 *
 * The coordinator counts it as held by a node of its own. Invariant: that record is never less than what is
 * held here.
 */
import { asPicoUnits, ceilDiv } from '../core/units.js';
import type { LeaseReply, LeaseAsk, MinuteAsk, ReturnedPermits } from './coordinator.js';
import { LONG_TICKS, SHARE, TICK_MS } from './grant-policy.js';
import { VALIDITY_MARGIN_MS } from './minute-lease.js';

/** What was given back because calls lacked it is theirs for so long. */
const RELEASED_MS = 2_000;
/** Permits are renewed so long before they expire: longer than an exchange can take. */
const RENEW_MS = 8_000;
/** The longest validity there is. */
const VALID_MS = LONG_TICKS * TICK_MS;

/** At least so many are set aside, otherwise what calls needed lately: never a million for a large limit. */
const PERMITS_LEAST = 60;
const CALLS_LEAST = 1_000;
const SLOTS_LEAST = 64;
/** Calls ask for the permits of two seconds; permits that are set aside are valid for eight times as long. */
const PERMITS_TIMES = 8;

const RESOURCES = ['minute', 'day', 'slots', 'money'] as const;
type Resource = (typeof RESOURCES)[number];

interface Permits extends ReturnedPermits {
  readonly expiresMs: number;
}

/** What calls were granted of a fallback quota; undefined if they did not ask for it. */
export interface FallbackGrant {
  readonly minute: { readonly count: number; readonly validMs: number } | undefined;
  readonly day: { readonly dayNumber: number; readonly count: number } | undefined;
  readonly slots: number | undefined;
  readonly money: bigint | undefined;
}

/** What is set aside of calls of the day, of slots or of money. Counts are bigints here, as money is. */
class StockQuota {
  held = 0n;
  /** What the coordinator could still grant to anybody when it last said so. */
  left = 0n;
  readonly #parts: bigint;

  constructor(parts: number) {
    this.#parts = BigInt(parts);
  }

  /**
   * Gives back what is more than this node's part, at most `most`; returns how much of the part is missing.
   * The part is nothing if others lack the rest: if less is left than half of what is held here, or less than
   * calls ask for at once.
   */
  shrink(isReleased: boolean, most: bigint, atOnce: bigint): bigint {
    const isScarce = this.left * 2n < this.held || this.left < atOnce;
    const share = (this.held + this.left) / this.#parts;
    const part = isReleased || isScarce ? 0n : share < most ? share : most;
    if (part < this.held) this.held = part;
    return part - this.held;
  }

  /** What was granted is added to what is here now, which may be less than when the ask left. */
  add(granted: number | bigint, remaining: number | bigint): void {
    this.held += BigInt(granted);
    this.left = BigInt(remaining);
  }

  /** Takes out between `least` and `most`, or nothing. */
  takeOut(least: number | bigint, most: number | bigint): bigint {
    if (most <= 0 || this.held < least) return 0n;
    const taken = this.held < most ? this.held : BigInt(most);
    this.held -= taken;
    return taken;
  }
}

export class FallbackQuota {
  /** The last ask of calls: which resources there are, and their limits. */
  #need: LeaseAsk;
  readonly #parts: number;
  servedMs: number;
  #permits: Permits | undefined;
  /** Permits that newer ones replace; the next ask returns them. */
  #replaced: Permits[] = [];
  #minuteLeft = 0;
  #dayNumber = 0;
  readonly #day: StockQuota;
  readonly #slots: StockQuota;
  readonly #money: StockQuota;
  #askedForNothing = false;
  /** The most that calls need of each, by their asks. */
  readonly #most = { minute: PERMITS_LEAST, day: CALLS_LEAST, slots: SLOTS_LEAST };
  /** Calls lacked the resource, so none of it is set aside until then. */
  readonly #releasedUntilMs: Record<Resource, number> = { minute: 0, day: 0, slots: 0, money: 0 };

  /** `shares`: how many nodes share the limits. */
  constructor(need: LeaseAsk, shares: number, nowMs: number) {
    this.#need = need;
    // A single node sets half aside: the other half serves its calls.
    this.#parts = Math.max(2, shares);
    this.#day = new StockQuota(this.#parts);
    this.#slots = new StockQuota(this.#parts);
    this.#money = new StockQuota(this.#parts);
    this.servedMs = nowMs;
  }

  /**
   * Takes note of what the coordinator replied to calls. What they lack is given back with the next ask;
   * returns true if there is some of it here. A resource that the ask leaves out is as it was.
   */
  serve(ask: LeaseAsk, reply: LeaseReply, nowMs: number): boolean {
    const { money = ask.money } = this.#need;
    // An ask that only reports says nothing of what calls cost.
    const onlyReports = ask.money?.most === 0n;
    this.#need = { ...this.#need, ...ask, ...(onlyReports && money !== undefined ? { money } : {}) };
    this.servedMs = nowMs;
    const { minute, day, slots } = ask;
    if (minute !== undefined && minute.most > 0)
      this.#most.minute = Math.max(PERMITS_LEAST, minute.most * PERMITS_TIMES);
    if (day !== undefined) this.#most.day = Math.max(CALLS_LEAST, day.used);
    if (slots !== undefined) this.#most.slots = Math.max(SLOTS_LEAST, slots.outstanding * 2);
    for (const resource of RESOURCES) {
      const wasDenied = (ask[resource]?.most ?? 0) > 0 && (reply[resource]?.granted ?? 0) <= 0;
      if (wasDenied) this.#releasedUntilMs[resource] = nowMs + RELEASED_MS;
    }
    return RESOURCES.some(
      (resource) => nowMs < this.#releasedUntilMs[resource] && this.#has(resource, nowMs),
    );
  }

  /** Whether there is anything that calls could be granted. */
  holds(nowMs: number): boolean {
    return RESOURCES.some((resource) => this.#has(resource, nowMs));
  }

  /** The coordinator has nothing of it on record, or soon will have nothing. */
  get isEmpty(): boolean {
    return this.#stocks.every(({ held }) => held === 0n) && this.#permits === undefined;
  }

  /** There are permits that the next ask will return. */
  get returns(): boolean {
    return this.#replaced.length > 0;
  }

  /** Reports what is set aside and asks for what is missing. `all`: gives all back and asks for nothing. */
  ask(nowMs: number, all: boolean): LeaseAsk {
    const { scope, limits, minute, day, slots, money } = this.#need;
    const isReleased = (resource: Resource): boolean => all || nowMs < this.#releasedUntilMs[resource];
    const calls = this.#day.shrink(isReleased('day'), BigInt(this.#most.day), 0n);
    const places = this.#slots.shrink(isReleased('slots'), BigInt(this.#most.slots), 0n);
    const atOnce = money?.most ?? 0n;
    const amount = this.#money.shrink(isReleased('money'), this.#money.held + this.#money.left, atOnce);
    const hasMinute = minute !== undefined && limits.requestsPerMinute > 0;
    // Permits of a limit that is gone are not returned to anybody.
    if (!hasMinute) this.#forgetPermits();
    const permits = hasMinute ? this.#minuteAsk(nowMs, isReleased('minute')) : undefined;
    this.#askedForNothing = calls + places + amount === 0n && (permits?.most ?? 0) === 0;
    return {
      scope,
      limits,
      ...(permits && { minute: permits }),
      ...(day && {
        day: {
          dayNumber: this.#dayNumber,
          used: 0,
          unused: Number(this.#day.held),
          ...wanted(Number(calls)),
        },
      }),
      ...(slots && { slots: { outstanding: Number(this.#slots.held), ...wanted(Number(places)) } }),
      ...(money && {
        money: {
          outstanding: asPicoUnits(this.#money.held),
          least: asPicoUnits(amount > 0n ? 1n : 0n),
          most: asPicoUnits(amount),
        },
      }),
    };
  }

  /** Takes over the reply to the ask that left at `sentMs`; returns whether more should be asked for now. */
  take({ minute, day, slots, money }: LeaseReply, sentMs: number): boolean {
    if (minute !== undefined) {
      this.#minuteLeft = minute.remaining;
      if (minute.granted > 0) {
        this.#replace();
        const expiresMs = sentMs + minute.validMs - VALIDITY_MARGIN_MS;
        this.#permits = { tick: minute.tick, count: minute.granted, expiresMs };
      }
    }
    if (day !== undefined) {
      if (day.dayNumber !== this.#dayNumber) this.#day.held = 0n;
      this.#dayNumber = day.dayNumber;
      this.#day.add(day.granted, day.remaining);
    }
    if (slots !== undefined) this.#slots.add(slots.granted, slots.remaining);
    if (money !== undefined) this.#money.add(money.granted, money.remaining);
    // The first reply is the first to say how much there is.
    const isLeft = this.#minuteLeft > 0 || this.#stocks.some(({ left }) => left > 0n);
    return this.#askedForNothing && this.isEmpty && isLeft;
  }

  /** Nothing is set aside any more, whatever the coordinator has on record. */
  drop(): void {
    this.#forgetPermits();
    for (const stock of this.#stocks) stock.held = 0n;
  }

  /** Grants calls what they ask for, as far as it goes. `dayNumber` is today. */
  grant({ minute, day, slots, money }: LeaseAsk, dayNumber: number, nowMs: number): FallbackGrant {
    const isToday = this.#dayNumber === dayNumber;
    return {
      minute: minute && this.#grantMinute(minute, nowMs),
      day: day && {
        dayNumber: this.#dayNumber,
        count: isToday ? Number(this.#day.takeOut(day.least, day.most)) : 0,
      },
      slots: slots && Number(this.#slots.takeOut(slots.least, slots.most)),
      money: money && this.#money.takeOut(money.least, money.most),
    };
  }

  get #stocks(): readonly StockQuota[] {
    return [this.#day, this.#slots, this.#money];
  }

  #minuteAsk(nowMs: number, isReleased: boolean): MinuteAsk {
    const { count = 0, expiresMs = 0 } = isReleased ? {} : (this.#permits ?? {});
    const left = this.#minuteLeft;
    const share = left * 2 < count ? 0 : Math.floor((count + left) / this.#parts);
    const own = Math.min(share, this.#most.minute);
    // Newer permits take the place of older ones, so no more are wanted than are granted at once.
    const part = Math.min(own, ceilDiv(left, SHARE));
    const isScarce = own < count;
    if (isReleased || isScarce || expiresMs <= nowMs) this.#replace();
    const returned = this.#replaced.map(({ tick, count: permits }) => ({ tick, count: permits }));
    this.#replaced = [];
    const renews = expiresMs - nowMs < RENEW_MS || part > count + count / 4;
    const most = isReleased || isScarce || !renews ? 0 : part;
    return { ...wanted(most), forMs: VALID_MS, isFallback: true, returned };
  }

  #forgetPermits(): void {
    this.#permits = undefined;
    this.#replaced = [];
  }

  #replace(): void {
    if (this.#permits !== undefined && this.#permits.count > 0) this.#replaced.push(this.#permits);
    this.#permits = undefined;
  }

  #has(resource: Resource, nowMs: number): boolean {
    if (resource === 'day') return this.#day.held > 0n;
    if (resource === 'slots') return this.#slots.held > 0n;
    if (resource === 'money') return this.#money.held > 0n;
    return this.#permits !== undefined && this.#permits.count > 0 && this.#permits.expiresMs > nowMs;
  }

  #grantMinute({ least, most }: MinuteAsk, nowMs: number): { count: number; validMs: number } {
    const permits = this.#permits;
    if (permits === undefined || permits.expiresMs <= nowMs) return { count: 0, validMs: 0 };
    const count = permits.count < least ? 0 : Math.min(permits.count, most);
    this.#permits = { ...permits, count: permits.count - count };
    return { count, validMs: permits.expiresMs - nowMs };
  }
}

/** An ask for `most`, or for any part of it. */
function wanted(most: number): { readonly least: number; readonly most: number } {
  return { least: most > 0 ? 1 : 0, most };
}
