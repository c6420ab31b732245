/**
 * The fallback quota of one scope: a part of its permits and stocks that is set aside for the time when the
 * coordinator cannot be reached. `FallbackCoordinator` keeps one for each scope that was served lately, sends
 * its asks, and grants calls from it. Main thread. All times are of the monotonic clock.
 *
 * Must hold: the coordinator's record is never less than what is held here; otherwise an amount is granted
 * twice. If calls are denied an amount, the quota of it is given back. Tests:
 * test/unit/sharing/fallback-quota.test.ts, fallback-coordinator.test.ts (random cuts, random use).
 */
import { ceilDiv } from '../core/units.js';
import {
  entriesOf,
  type LeaseAsk,
  type LeaseReply,
  type MinuteAsk,
  type ReturnedPermits,
  type StockAsk,
  type StockGrant,
  type StockName,
  type Stocks,
} from './coordinator.js';
import { LONG_TICKS, SHARE, TICK_MS } from './grant-policy.js';
import { VALIDITY_MARGIN_MS } from './minute-lease.js';

/** After giving an amount back because calls were denied it, nothing of it is set aside for so long. */
const RELEASED_MS = 2_000;
/** Permits are renewed so long before they expire: longer than an exchange can take. */
const RENEW_MS = 8_000;
/** The longest validity there is. */
const VALID_MS = LONG_TICKS * TICK_MS;

/** At least so many are set aside, otherwise what calls needed lately: never a million for a large limit. */
const PERMITS_LEAST = 60;
const CALLS_LEAST = 1_000n;
const SLOTS_LEAST = 64n;
/** Calls ask for the permits of two seconds; permits that are set aside are valid for eight times as long. */
const PERMITS_TIMES = 8;

interface Permits extends ReturnedPermits {
  readonly expiresMs: number;
}

/** What calls were granted of a fallback quota; undefined if they did not ask for it. */
export interface FallbackGrant {
  readonly minute: { readonly count: number; readonly validMs: number } | undefined;
  readonly stocks: Stocks<bigint>;
}

/** What is set aside of one stock. */
class StockQuota {
  readonly #name: StockName;
  readonly #parts: bigint;
  /** The last ask of calls that wanted more. */
  #need: StockAsk;
  #period = 0;
  #held = 0n;
  /** What the coordinator could still grant to anybody, as of its last reply. */
  left = 0n;
  /** Until then none of it is set aside, because calls were denied it. */
  #releasedUntilMs = 0;

  constructor(name: StockName, parts: number, need: StockAsk) {
    this.#name = name;
    this.#parts = BigInt(parts);
    this.#need = need;
  }

  get holdsAny(): boolean {
    return this.#held > 0n;
  }

  /** Takes in the coordinator's reply to calls; returns whether calls are denied something that is here. */
  serve(ask: StockAsk, reply: StockGrant | undefined, nowMs: number): boolean {
    // An ask that only reports does not show how much calls need at once.
    const { least, most } = ask.most > 0n ? ask : this.#need;
    // An earlier period in the reply: that of the ask was a mistake of a clock.
    const period = reply !== undefined && reply.period < ask.period ? reply.period : ask.period;
    this.#need = { ...ask, period, least, most };
    const wasDenied = ask.most > 0n && (reply?.granted ?? 0n) <= 0n;
    if (wasDenied) this.#releasedUntilMs = nowMs + RELEASED_MS;
    return nowMs < this.#releasedUntilMs && this.holdsAny;
  }

  /**
   * Gives back what is more than this node's part, and asks for what is missing. The part is nothing if
   * others lack the rest: if less is left than half of what is held here, or less than calls ask for at once.
   */
  ask(all: boolean, nowMs: number): StockAsk {
    const { limit, period } = this.#need;
    if (period > this.#period) this.#held = 0n;
    this.#period = Math.max(this.#period, period);
    const isReleased = all || nowMs < this.#releasedUntilMs;
    const isScarce = this.left * 2n < this.#held || this.left < this.#atOnce;
    const share = (this.#held + this.left) / this.#parts;
    const part = isReleased || isScarce ? 0n : share < this.#most ? share : this.#most;
    if (part < this.#held) this.#held = part;
    const most = part - this.#held;
    const unused = this.#held;
    return { limit, period: this.#period, used: 0n, unused, least: most > 0n ? 1n : 0n, most };
  }

  /** What was granted is added to what is here now, which may be less than when the ask left. */
  take({ granted, remaining, period }: StockGrant): void {
    if (period !== this.#period) this.#held = 0n;
    this.#period = period;
    this.#held += granted;
    this.left = remaining;
  }

  /** Grants calls between `least` and `most`, or nothing. */
  grant({ period, least, most }: StockAsk): bigint {
    if (period !== this.#period || most <= 0n || this.#held < least) return 0n;
    const taken = this.#held < most ? this.#held : most;
    this.#held -= taken;
    return taken;
  }

  drop(): void {
    this.#held = 0n;
  }

  /** Calls take one call or slot each, but what they take of another stock may be much of what is left. */
  get #atOnce(): bigint {
    return this.#name.startsWith('calls_') ? 0n : this.#need.most;
  }

  /** The most that is set aside. */
  get #most(): bigint {
    const { used, unused } = this.#need;
    if (this.#name === 'calls_in_flight') return unused * 2n > SLOTS_LEAST ? unused * 2n : SLOTS_LEAST;
    if (this.#name.startsWith('calls_')) return used > CALLS_LEAST ? used : CALLS_LEAST;
    return this.#held + this.left;
  }
}

export class FallbackQuota {
  readonly #scope: string;
  readonly #parts: number;
  /** When the coordinator last replied to calls. */
  servedMs: number;
  /** The last ask of calls for permits. */
  #minute: MinuteAsk | undefined;
  #permits: Permits | undefined;
  /** Permits that newer ones have replaced; the next ask returns them. */
  #replaced: Permits[] = [];
  #minuteLeft = 0;
  /** The most that calls need, by their asks. */
  #minuteMost = PERMITS_LEAST;
  /** Until then no permits are set aside, because calls were denied some. */
  #minuteReleasedUntilMs = 0;
  readonly #stocks = new Map<StockName, StockQuota>();
  /** Whether the last ask only reported. */
  #askedForNothing = false;

  /** `shares`: how many nodes share the limits. */
  constructor(scope: string, shares: number, nowMs: number) {
    this.#scope = scope;
    // A single node sets half aside: the other half serves its calls.
    this.#parts = Math.max(2, shares);
    this.servedMs = nowMs;
  }

  /**
   * Takes in the coordinator's reply to calls. The next ask gives back what they were denied; returns true if
   * some of it is here. A resource that the ask leaves out stays as it was.
   */
  serve({ minute, stocks = {} }: LeaseAsk, reply: LeaseReply, nowMs: number): boolean {
    this.servedMs = nowMs;
    if (minute !== undefined) {
      this.#minute = minute;
      if (minute.most > 0) this.#minuteMost = Math.max(PERMITS_LEAST, minute.most * PERMITS_TIMES);
      if (minute.most > 0 && (reply.minute?.granted ?? 0) === 0)
        this.#minuteReleasedUntilMs = nowMs + RELEASED_MS;
    }
    let isLacking = nowMs < this.#minuteReleasedUntilMs && this.#hasPermits(nowMs);
    for (const [name, ask] of entriesOf(stocks)) {
      const stock = this.#stocks.get(name) ?? new StockQuota(name, this.#parts, ask);
      this.#stocks.set(name, stock);
      isLacking = stock.serve(ask, reply.stocks?.[name], nowMs) || isLacking;
    }
    return isLacking;
  }

  /** Whether there is anything that calls could be granted. */
  holds(nowMs: number): boolean {
    return this.#hasPermits(nowMs) || this.#holdsStock;
  }

  /** Nothing is held here, so the coordinator has nothing on record, or soon will. */
  get isEmpty(): boolean {
    return !this.#holdsStock && this.#permits === undefined;
  }

  /** There are permits that the next ask will return. */
  get returns(): boolean {
    return this.#replaced.length > 0;
  }

  /** Reports what is set aside and asks for what is missing. `all`: gives all back and asks for nothing. */
  ask(nowMs: number, all: boolean): LeaseAsk {
    const isReleased = all || nowMs < this.#minuteReleasedUntilMs;
    const minute = this.#minute && this.#minuteAsk(this.#minute.limit, nowMs, isReleased);
    const stocks = Array.from(this.#stocks, ([name, stock]) => [name, stock.ask(all, nowMs)] as const);
    this.#askedForNothing = (minute?.most ?? 0) === 0 && stocks.every(([, { most }]) => most === 0n);
    return {
      scope: this.#scope,
      ...(minute && { minute }),
      stocks: Object.fromEntries(stocks),
    };
  }

  /** Takes in the reply to the last ask, sent at `sentMs`; returns whether to ask for more at once. */
  take({ minute, stocks = {} }: LeaseReply, sentMs: number): boolean {
    if (minute !== undefined) {
      this.#minuteLeft = minute.remaining;
      if (minute.granted > 0) {
        this.#replace();
        const expiresMs = sentMs + minute.validMs - VALIDITY_MARGIN_MS;
        this.#permits = { tick: minute.tick, count: minute.granted, expiresMs };
      }
    }
    for (const [name, grant] of entriesOf(stocks)) this.#stocks.get(name)?.take(grant);
    // The first reply is the first to say how much there is.
    const isLeft = this.#minuteLeft > 0 || [...this.#stocks.values()].some(({ left }) => left > 0n);
    return this.#askedForNothing && this.isEmpty && isLeft;
  }

  /** Drops all that is set aside: the coordinator may have granted it to others. */
  drop(): void {
    this.#permits = undefined;
    this.#replaced = [];
    for (const stock of this.#stocks.values()) stock.drop();
  }

  /** Grants calls what they ask for, as far as it goes. */
  grant({ minute, stocks = {} }: LeaseAsk, nowMs: number): FallbackGrant {
    const granted = entriesOf(stocks).map(([name, ask]) => [name, this.#stocks.get(name)?.grant(ask) ?? 0n]);
    return {
      minute: minute && this.#grantMinute(minute, nowMs),
      stocks: Object.fromEntries(granted) as Stocks<bigint>,
    };
  }

  get #holdsStock(): boolean {
    for (const stock of this.#stocks.values()) if (stock.holdsAny) return true;
    return false;
  }

  #minuteAsk(limit: number, nowMs: number, isReleased: boolean): MinuteAsk {
    const { count = 0, expiresMs = 0 } = isReleased ? {} : (this.#permits ?? {});
    const left = this.#minuteLeft;
    const share = left * 2 < count ? 0 : Math.floor((count + left) / this.#parts);
    const own = Math.min(share, this.#minuteMost);
    // Newer permits take the place of older ones, so no more are wanted than are granted at once.
    const part = Math.min(own, ceilDiv(left, SHARE));
    const isScarce = own < count;
    if (isReleased || isScarce || expiresMs <= nowMs) this.#replace();
    const returned = this.#replaced.map(({ tick, count: permits }) => ({ tick, count: permits }));
    this.#replaced = [];
    const renews = expiresMs - nowMs < RENEW_MS || part > count + count / 4;
    const most = isReleased || isScarce || !renews ? 0 : part;
    return { limit, least: most > 0 ? 1 : 0, most, forMs: VALID_MS, isFallback: true, returned };
  }

  #replace(): void {
    if (this.#permits !== undefined && this.#permits.count > 0) this.#replaced.push(this.#permits);
    this.#permits = undefined;
  }

  #hasPermits(nowMs: number): boolean {
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
