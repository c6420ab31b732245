/**
 * The fallback quota of one scope: permits and stocks that are set aside for the time when the coordinator
 * cannot be reached. fallback-coordinator.ts has one for each scope that was served lately, sends its asks
 * one at a time, and grants calls from it. Main thread. All times are of the monotonic clock.
 *
 * Of what the coordinator could still grant, each node sets aside an equal part, up to a maximum. A node sets
 * nothing aside of a _scarce_ resource (`isScarce`). It gives back what the coordinator has denied to calls.
 *
 * Must hold: the coordinator's record is never less than what this quota holds; otherwise an amount is
 * granted twice. So an amount is taken out of this quota before the ask that gives it back is sent. What was
 * granted to calls is missing in the next ask too. So that ask is sent only after the calls' node has
 * reported these grants (`mayReport` of FallbackCoordinator). Also
 * test/unit/sharing/fallback-coordinator.test.ts (random cuts and use).
 */
import { ceilDiv, maxOf, minOf } from '../core/units.js';
import {
  entriesOf,
  type LeaseAsk,
  type LeaseReply,
  mapStocks,
  type MinuteAsk,
  type GrantedPermits,
  type StockAsk,
  type StockGrant,
  type StockName,
  type Stocks,
} from './coordinator.js';
import { GRANT_PART, VALID_MS_MAX } from './grant-policy.js';
import { VALIDITY_MARGIN_MS } from './minute-lease.js';

/** For so long after the coordinator has denied a resource to calls, none of it is set aside. */
const DENIED_MS = 2_000;
/** Permits are renewed so long before they expire: longer than an exchange can take. */
const RENEW_MS = 8_000;

/**
 * The maximum that is set aside is what calls needed lately, but at least so many. So an account without
 * calls has some set aside, but not a part of millions if its limit is as high.
 */
const PERMITS_MAX_MIN = 60;
const CALLS_MAX_MIN = 1_000n;
const SLOTS_MAX_MIN = 64n;
/** The permits set aside cover so many asks of calls at most. An ask is for 1 to 20 s, permits last 24 s. */
const ASKS_COVERED = 8;

/** Whether a resource is scarce: the coordinator has less of it left than half of what this quota holds. */
function isScarce(held: number | bigint, remaining: number | bigint): boolean {
  return Number(remaining) * 2 < Number(held);
}

interface Permits extends GrantedPermits {
  readonly expiresMs: number;
}

/** What a fallback quota granted to calls. Resources that they did not ask for are left out. */
export interface FallbackGrant {
  readonly minute: { readonly count: number; readonly validMs: number } | undefined;
  readonly stocks: Stocks<bigint>;
}

/**
 * What is set aside of one stock. An amount counts in one period, and is worth nothing in any other. Asks
 * name periods by the calendars of their nodes, one of which may be wrong. So the latest period counts,
 * unless the coordinator replies with an earlier one.
 */
class StockQuota {
  readonly #name: StockName;
  readonly #shares: bigint;
  /** The last ask of calls, but with `least` and `most` of their last ask that wanted more. */
  #lastReport: StockAsk;
  #period = 0; // the period of what is held
  #held = 0n;
  /** What the coordinator could still grant to any node, by its last reply. */
  #remaining = 0n;
  /** Until then none of the stock is set aside: the coordinator has denied some to calls. */
  #deniedUntilMs = 0;

  constructor(name: StockName, shares: number, ask: StockAsk) {
    this.#name = name;
    this.#shares = BigInt(shares);
    this.#lastReport = ask;
  }

  get holdsAny(): boolean {
    return this.#held > 0n;
  }

  /** Whether the coordinator has some left, by its last reply. */
  get mayGetAny(): boolean {
    return this.#remaining > 0n;
  }

  /** Records the coordinator's reply to calls. Returns whether calls lack some of what is set aside. */
  recordReply(ask: StockAsk, reply: StockGrant | undefined, nowMs: number): boolean {
    // An ask that only reports does not show how much calls need at once.
    const { least, most } = ask.most > 0n ? ask : this.#lastReport;
    // The coordinator names an earlier period if that of the ask was a mistake of a clock.
    const period = reply !== undefined && reply.period < ask.period ? reply.period : ask.period;
    this.#lastReport = { ...ask, period, least, most };
    const wasDenied = ask.most > 0n && (reply?.granted ?? 0n) <= 0n;
    if (wasDenied) this.#deniedUntilMs = nowMs + DENIED_MS;
    return nowMs < this.#deniedUntilMs && this.holdsAny;
  }

  /**
   * The next ask: gives back what is held beyond the target, or asks for what is missing to the target. The
   * target is 0 if the stock is scarce, or less remains than calls ask for at once, or calls were denied
   * some, or with `givesAllBack`.
   */
  ask(nowMs: number, { givesAllBack }: { readonly givesAllBack: boolean }): StockAsk {
    const { limit, period } = this.#lastReport;
    if (period > this.#period) this.#held = 0n;
    this.#period = Math.max(this.#period, period);
    const keepsNothing = givesAllBack || nowMs < this.#deniedUntilMs;
    const isTooScarce = isScarce(this.#held, this.#remaining) || this.#remaining < this.#neededAtOnce;
    const equalPart = (this.#held + this.#remaining) / this.#shares;
    const target = keepsNothing || isTooScarce ? 0n : minOf(equalPart, this.#max);
    this.#held = minOf(this.#held, target);
    const most = target - this.#held;
    return { limit, period: this.#period, used: 0n, unused: this.#held, least: most > 0n ? 1n : 0n, most };
  }

  /** Adds the grant to what is held now, which may be less than the ask reported: calls were granted some. */
  applyGrant({ granted, remaining, period }: StockGrant): void {
    if (period !== this.#period) this.#held = 0n;
    this.#period = period;
    this.#held += granted;
    this.#remaining = remaining;
  }

  /** Grants calls between `least` and `most`, or nothing. */
  grant({ period, least, most }: StockAsk): bigint {
    if (period !== this.#period || most <= 0n || this.#held < least) return 0n;
    const granted = minOf(this.#held, most);
    this.#held -= granted;
    return granted;
  }

  /** Drops what is held, because the coordinator may have granted it to others. */
  drop(): void {
    this.#held = 0n;
  }

  /** What calls ask for at once, as one call may need much of it; 0 for calls and slots: it takes one. */
  get #neededAtOnce(): bigint {
    return this.#name.startsWith('calls_') ? 0n : this.#lastReport.most;
  }

  /** The most that is set aside. Money and tokens have no maximum: a call may need any part of them. */
  get #max(): bigint {
    const { used, unused } = this.#lastReport;
    // `unused` of the calls' ask counts slots that calls hold, and leased slots that are free.
    if (this.#name === 'calls_in_flight') return maxOf(unused * 2n, SLOTS_MAX_MIN);
    // At most as many calls as this node has made in the period so far.
    if (this.#name.startsWith('calls_')) return maxOf(used, CALLS_MAX_MIN);
    return this.#held + this.#remaining;
  }
}

export class FallbackQuota {
  readonly scope: string;
  /** Into how many parts the limits are divided. 2 for a single node: the other part serves its calls. */
  readonly #shares: number;
  #servedMs: number;
  #minute: MinuteAsk | undefined; // the last ask of calls for permits
  #permits: Permits | undefined;
  /** Permits that the next ask returns, because newer ones have replaced them or permits are scarce. */
  #toReturn: Permits[] = [];
  /** How many permits the coordinator could still grant to any node, by its last reply. */
  #minuteRemaining = 0;
  #minuteMax = PERMITS_MAX_MIN;
  /** Until then no permits are set aside: the coordinator has denied some to calls. */
  #minuteDeniedUntilMs = 0;
  readonly #stocks = new Map<StockName, StockQuota>();
  #hasReply = false; // whether the coordinator has replied to an ask of this quota

  /** `shares`: among how many nodes the limits are divided. */
  constructor(scope: string, shares: number, nowMs: number) {
    this.scope = scope;
    this.#shares = Math.max(2, shares);
    this.#servedMs = nowMs;
  }

  /**
   * Records the coordinator's reply to an ask of calls. Returns whether this quota holds some of what calls
   * were denied: its next ask gives that back. A resource that calls did not ask for stays as it was.
   */
  recordReply({ minute, stocks = {} }: LeaseAsk, reply: LeaseReply, nowMs: number): boolean {
    this.#servedMs = nowMs;
    if (minute !== undefined) {
      this.#minute = minute;
      if (minute.most > 0) this.#minuteMax = Math.max(PERMITS_MAX_MIN, minute.most * ASKS_COVERED);
      if (minute.most > 0 && (reply.minute?.granted ?? 0) === 0)
        this.#minuteDeniedUntilMs = nowMs + DENIED_MS;
    }
    let isDenied = nowMs < this.#minuteDeniedUntilMs && this.#hasPermits(nowMs);
    for (const [name, ask] of entriesOf(stocks)) {
      const stock = this.#stocks.get(name) ?? new StockQuota(name, this.#shares, ask);
      this.#stocks.set(name, stock);
      isDenied = stock.recordReply(ask, reply.stocks?.[name], nowMs) || isDenied;
    }
    return isDenied;
  }

  /** When the coordinator last replied to calls. */
  get servedMs(): number {
    return this.#servedMs;
  }

  holdsAnyAt(nowMs: number): boolean {
    return this.#hasPermits(nowMs) || this.#holdsStock;
  }

  /** Whether nothing is held. The coordinator may have more on record until the next ask. */
  get isEmpty(): boolean {
    return !this.#holdsStock && this.#permits === undefined;
  }

  /** Whether there are permits that the next ask will return. */
  get hasPermitsToReturn(): boolean {
    return this.#toReturn.length > 0;
  }

  /** Reports what is set aside and asks for what is missing, or gives all back and asks for nothing. */
  ask(nowMs: number, { givesAllBack }: { readonly givesAllBack: boolean }): LeaseAsk {
    const keepsNothing = givesAllBack || nowMs < this.#minuteDeniedUntilMs;
    const minute = this.#minute && this.#minuteAsk(this.#minute.limit, nowMs, keepsNothing);
    const stocks = Array.from(
      this.#stocks,
      ([name, stock]) => [name, stock.ask(nowMs, { givesAllBack })] as const,
    );
    return { scope: this.scope, ...(minute && { minute }), stocks: Object.fromEntries(stocks) };
  }

  /**
   * Applies the reply to the last ask, which was sent at `sentMs`. Returns whether to ask again at once: only
   * after the first ask. The first ask wants nothing, because only a reply says how much remains.
   */
  applyReply({ minute, stocks = {} }: LeaseReply, sentMs: number): boolean {
    if (minute !== undefined) {
      this.#minuteRemaining = minute.remaining;
      if (minute.granted > 0) {
        this.#returnPermits();
        const expiresMs = sentMs + minute.validMs - VALIDITY_MARGIN_MS;
        this.#permits = { tick: minute.tick, count: minute.granted, expiresMs };
      }
    }
    for (const [name, grant] of entriesOf(stocks)) this.#stocks.get(name)?.applyGrant(grant);
    const isFirst = !this.#hasReply;
    this.#hasReply = true;
    return (
      isFirst && (this.#minuteRemaining > 0 || [...this.#stocks.values()].some((stock) => stock.mayGetAny))
    );
  }

  /** Drops all that is set aside: the coordinator may have granted it to others. No ask is under way then. */
  drop(): void {
    this.#permits = undefined;
    this.#toReturn = [];
    for (const stock of this.#stocks.values()) stock.drop();
  }

  /** Grants calls what they ask for, as far as it is set aside. */
  grant({ minute, stocks = {} }: LeaseAsk, nowMs: number): FallbackGrant {
    return {
      minute: minute && this.#grantMinute(minute, nowMs),
      stocks: mapStocks(stocks, (ask, name) => this.#stocks.get(name)?.grant(ask) ?? 0n),
    };
  }

  get #holdsStock(): boolean {
    for (const stock of this.#stocks.values()) if (stock.holdsAny) return true;
    return false;
  }

  /** Permits are returned all or none: if fewer are to be set aside, a later ask gets these. */
  #minuteAsk(limit: number, nowMs: number, keepsNothing: boolean): MinuteAsk {
    const { count = 0, expiresMs = 0 } = keepsNothing ? {} : (this.#permits ?? {});
    const remaining = this.#minuteRemaining;
    const equalPart = isScarce(count, remaining) ? 0 : Math.floor((count + remaining) / this.#shares);
    const target = Math.min(equalPart, this.#minuteMax);
    const isTooMuch = target < count;
    if (keepsNothing || isTooMuch || expiresMs <= nowMs) this.#returnPermits();
    // If this ask is lost, these permits are not returned: the coordinator counts them until they expire.
    const returned = this.#toReturn.map(({ tick, count: permits }) => ({ tick, count: permits }));
    this.#toReturn = [];
    // A new grant replaces the older one, and one ask is granted no more than `remaining` / GRANT_PART.
    const wanted = Math.min(target, ceilDiv(remaining, GRANT_PART));
    // Permits that stay valid are replaced only by a quarter more.
    const renews = expiresMs - nowMs < RENEW_MS || wanted > count + count / 4;
    const most = keepsNothing || isTooMuch || !renews ? 0 : wanted;
    return { limit, least: most > 0 ? 1 : 0, most, forMs: VALID_MS_MAX, isFallback: true, returned };
  }

  /** Moves the permits that are held to `#toReturn`, so that the next ask returns them. */
  #returnPermits(): void {
    if (this.#permits !== undefined && this.#permits.count > 0) this.#toReturn.push(this.#permits);
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
