/**
 * Manages the leases of this process: asks the coordinator for what requests wait for and for what runs low,
 * and gives back what lies idle. gateway/shared-accounting.ts makes it. Main thread.
 *
 * One exchange is under way at a time. The next one carries the asks of all scopes that are _due_. The
 * coordinator is _lost_ from a failed exchange to the next reply. No timer runs while no scope has a lease or
 * a wait, unless the coordinator is lost.
 *
 * Must hold: one exchange at a time, every wait ends, an idle gateway sends nothing, and no call is admitted
 * from a lease that others may be granted (test/unit/sharing/lease-manager.test.ts, lease-laws.test.ts).
 */
import type { LeaseEnd, LeaseNeed, LeaseScope } from '../channel/lease-channel.js';
import type { Clock } from '../core/clock.js';
import type { Calendar } from '../core/calendar.js';
import { asWallMs, type AccountIndex, type PicoUnits, type WallMs } from '../core/units.js';
import { CoordinatorContact, type ContactState } from './coordinator-contact.js';
import {
  type Coordinator,
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type LeaseAsk,
  periodAt,
  type PeriodOf,
} from './coordinator.js';
import { SWEEP_MS } from './lease-terms.js';
import { type LeaseTimers, TIMER_EARLY_MS } from './lease-timers.js';
import { LeaseWaits } from './lease-waits.js';
import { type NextExchange, LeasedScope, type ScopeAddress, stocksIn } from './leased-scope.js';
import type { CallsUse, ManagerState } from './sharing-stats.js';

/** How often waits ask again for what others may have given back, and deadlines are checked. */
const RETRY_MS = 60;
/** A process that has leases makes an exchange after so long without one, as a sign of life. */
const HEARTBEAT_MS = 5_000;
/** How long a start waits at most while the coordinator waits for other nodes: two of their heartbeats. */
const START_MS_MAX = 2 * HEARTBEAT_MS;
/**
 * After so long without a reply calls take no tokens of the minute, because the server may grant them to
 * others (`drop_silent` in valkey-exchange.ts). EXPIRY_MARGIN_MS of open-hosts.ts is built on it.
 */
export const CUT_OFF_MS = 30_000;
/** After a longer exchange the calendar is corrected only if it is wrong by more than the exchange took. */
const CALENDAR_EXCHANGE_MS_MAX = 500;

export interface LeaseManagerOptions {
  /** Undefined for a scope that the ledger does not have, or no longer. */
  readonly addressOf: (scope: LeaseScope) => ScopeAddress | undefined;
  /** The groups that the account is in, from its own upward. */
  readonly groupsOf?: (account: number) => readonly number[];
  /** For all days and months but those of calls a day, whose time zone is fixed. */
  readonly calendar: Calendar;
  readonly coordinator: Coordinator;
  /**
   * If the coordinator has not replied for so long, no call gets a call slot, because others may be granted
   * the slot before the call ends. Each account limits its calls in flight, so no call begins at all.
   * Default: never.
   */
  readonly silentMsMax?: number | undefined;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** Returns a number in [0, 1), as Math.random does. */
  readonly random: () => number;
  /** The coordinator's calendar showed `wallMs` when this host's showed `hostWallMs`. */
  readonly onCalendar: (wallMs: WallMs, hostWallMs: number) => void;
  /** Called once when the coordinator is lost, and once when it replies again. */
  readonly onContact: (state: ContactState) => void;
}

export class LeaseManager {
  readonly #options: LeaseManagerOptions;
  readonly #contact: CoordinatorContact;
  /** The scopes of which something is leased, waited for or to be reported, by `nameOf`. */
  readonly #scopes = new Map<string, LeasedScope>();
  readonly #due = new Set<LeasedScope>(); // for the next exchange
  readonly #waits: LeaseWaits;
  #exchangeNumber = 0; // of the last exchange that has begun
  #exchanging: Promise<void> | undefined; // the exchange under way
  #isScheduled = false; // whether the next exchange begins at the end of this event-loop turn
  #stopTimer: (() => void) | undefined;
  #sweptMs = 0; // when leases were last checked for what lies idle
  #hasJoined = false;
  /** ExchangeReply.isAlone of the last reply: this node itself made the reply, because it is cut off. */
  #isAlone = false;
  /** When the last exchange was sent to which the coordinator itself replied; Infinity before the first. */
  #heardMs = Infinity;
  /** Whether asks report all that is leased, and not only what changed: see `#reportScopes`. */
  #reportsAll = false;
  #isClosed = false;
  #aheadMs = 0; // by how much the coordinator's calendar is ahead of the host's

  constructor(options: LeaseManagerOptions) {
    this.#options = options;
    this.#contact = new CoordinatorContact(options.random);
    this.#waits = new LeaseWaits({
      clock: options.clock,
      contact: this.#contact,
      periodOf: this.#periodOf,
      ask: (scope) => this.#ask(scope),
    });
    options.coordinator.onBack = () => {
      this.#contact.endPause();
      if (this.#contact.isLost && !this.#isClosed) void this.#exchange();
    };
  }

  /**
   * Joins the coordinator, and tries again until it works, whether leases are needed or not. Resolves when
   * the coordinator grants leases; when it has lost data; when it has not replied for as long as a brief loss
   * lasts; or when it waits for other nodes, at the latest START_MS_MAX after the first try. It must resolve,
   * because the caller serves only then, and only then a process ends that this one replaces.
   */
  async start(): Promise<void> {
    await this.#exchange();
    const endMs = this.#nowMs + START_MS_MAX;
    let isChecking = false;
    const isAwaited = (): boolean => {
      const reason = this.#contact.state.lost?.reason;
      isChecking ||= reason === 'checking';
      // Once the coordinator has said that it waits, an exchange without a reply ends no wait.
      const isOver = isChecking ? reason === 'quarantine' : this.#contact.isLostForLong(this.#nowMs);
      return this.#contact.isLost && !isOver && this.#nowMs < endMs && !this.#isClosed;
    };
    while (isAwaited())
      await new Promise<void>((resolve) => void this.#options.timers.after(RETRY_MS, resolve));
  }

  get state(): ManagerState {
    return { ...this.#contact.state, scopes: this.#scopes.size, waits: this.#waits.size };
  }

  /** Resolves when the need is met or cannot be, also by the groups of the accounts. Never rejects. */
  wait(scopes: readonly LeaseScope[], need: LeaseNeed): Promise<LeaseEnd> {
    const { groupsOf } = this.#options;
    const groups = scopes.flatMap(({ kind, index }) => (kind === 'account' ? (groupsOf?.(index) ?? []) : []));
    const leased = [...scopes, ...groups.map((index): LeaseScope => ({ kind: 'group', index }))]
      .map((scope) => this.#open(scope))
      .filter((scope) => scope !== undefined);
    if (this.#isClosed || leased.length === 0) return Promise.resolve('lost');
    const end = this.#waits.add(need, leased);
    this.#runTimer();
    return end;
  }

  /** Called when threads have used most of what is leased of these scopes: asks for more. */
  askForMore(scopes: readonly LeaseScope[]): void {
    for (const scope of scopes) {
      const leased = this.#open(scope);
      if (leased === undefined) continue;
      leased.recordLow();
      this.#ask(leased);
    }
  }

  /** What calls of this process use of the scope now; undefined for a scope that the ledger has not. */
  callsUse(scope: LeaseScope): Omit<CallsUse, 'slot'> | undefined {
    const leased = this.#scopes.get(nameOf(scope));
    const address = leased?.address ?? this.#options.addressOf(scope);
    if (address === undefined) return undefined;
    // A scope without leases has nothing unused, and no ask under way.
    const { unused = 0, heardNumber = this.#exchangeNumber } = leased?.minute ?? {};
    return { scope: address.scopeId, minute: { unused, heardNumber }, stocks: stocksIn(address) };
  }

  /** Gives back at once the account's money that no call holds, because an operator debits the account. */
  recallMoney(account: AccountIndex): void {
    const leased = this.#scopes.get(nameOf({ kind: 'account', index: account }));
    if (leased === undefined) return;
    leased.money?.giveBack();
    this.#ask(leased);
  }

  /** Sets how much of the account's uncovered charges is to be collected; 0 ends the collection. */
  setUncovered(account: AccountIndex, amount: PicoUnits): void {
    const scope: LeaseScope = { kind: 'account', index: account };
    const leased = amount > 0n ? this.#open(scope) : this.#scopes.get(nameOf(scope));
    if (leased === undefined || this.#isClosed) return;
    leased.openMoney(this.#nowMs)?.setUncovered(amount);
    this.#ask(leased);
    this.#runTimer();
  }

  /** Gives back all that is unused and leaves the coordinator. Call it after the last flush. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stopTimer?.();
    this.#waits.close();
    await this.#exchanging;
    try {
      if (this.#hasJoined) await this.#leave();
    } catch (error) {
      this.#contact.recordFailure(error, this.#nowMs);
    }
    await this.#options.coordinator.close();
  }

  get #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }

  readonly #periodOf: PeriodOf = (name) => {
    const { calendar, clock } = this.#options;
    return periodAt(name, calendar, asWallMs(clock.wallMs() + this.#aheadMs));
  };

  /** The leases of the scope. If there are none, makes them; undefined if the ledger lacks the scope. */
  #open(scope: LeaseScope): LeasedScope | undefined {
    const name = nameOf(scope);
    const leased = this.#scopes.get(name);
    if (leased !== undefined) return leased;
    const address = this.#options.addressOf(scope);
    if (address === undefined) return undefined;
    const opened = new LeasedScope(address, this.#nowMs);
    this.#scopes.set(name, opened);
    return opened;
  }

  /** Puts the scope into the next exchange. */
  #ask(scope: LeasedScope): void {
    this.#due.add(scope);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isScheduled || this.#exchanging !== undefined || this.#isClosed || this.#due.size === 0) return;
    this.#isScheduled = true;
    this.#options.timers.soon(() => {
      this.#isScheduled = false;
      if (!this.#isClosed) void this.#exchange();
    });
  }

  /** Makes one exchange, and the next if scopes became due meanwhile. Rejects only by a bug. */
  async #exchange(): Promise<void> {
    if (this.#exchanging !== undefined || !this.#contact.mayTry(this.#nowMs)) return;
    const exchanging = this.#exchangeOnce();
    this.#exchanging = exchanging;
    await exchanging;
    this.#exchanging = undefined;
    this.#runTimer();
    this.#schedule();
  }

  async #exchangeOnce(): Promise<void> {
    const { coordinator, clock } = this.#options;
    const asks = new Map<LeasedScope, LeaseAsk>();
    const wasLost = this.#contact.isLost;
    try {
      if (!this.#hasJoined) await this.#join();
      const sentMs = this.#nowMs;
      this.#takeAsks(asks, sentMs);
      const { wallMs, replies, isAlone = false } = await coordinator.exchange([...asks.values()]);
      this.#isAlone = isAlone;
      const nowMs = this.#nowMs;
      this.#contact.recordReply(sentMs, nowMs);
      // A node that replies to itself has only the host's calendar: the last known difference holds.
      if (!isAlone) {
        this.#followCalendar(wallMs, clock.wallMs(), nowMs - sentMs);
        // After so long the coordinator may have freed what this process leases, as of a node that has ended.
        if (nowMs - this.#heardMs >= CUT_OFF_MS) this.#reportScopes();
        this.#heardMs = sentMs;
      }
      const othersMayGetSlots = this.#othersMayGetSlots(nowMs);
      const asked = [...asks.keys()];
      for (const [index, scope] of asked.entries()) {
        // Called before the reply is applied, which adds to slots only if they are no longer withheld.
        scope.slots?.setWithheld(othersMayGetSlots);
        scope.applyReply(replies[index]!, sentMs, nowMs);
      }
      this.#waits.onReplies(asked);
      for (const scope of asked) this.#forgetIfEmpty(scope);
      if (wasLost) this.#options.onContact(this.#contact.state);
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
      this.#onLoss(error, asks.keys(), wasLost);
    }
  }

  /** Joins before the first ask, which needs the coordinator's calendar for its days and months. */
  async #join(): Promise<void> {
    const sentMs = this.#nowMs;
    const wallMs = await this.#options.coordinator.join();
    this.#followCalendar(wallMs, this.#options.clock.wallMs(), this.#nowMs - sentMs);
    this.#hasJoined = true;
  }

  /** Moves the asks of scopes that are due to `asks`, as many as one exchange carries. */
  #takeAsks(asks: Map<LeasedScope, LeaseAsk>, nowMs: number): void {
    const exchange = this.#nextExchange(nowMs, { reportsAll: this.#reportsAll });
    for (const scope of this.#due) {
      if (asks.size === EXCHANGE_ASKS_MAX) break;
      this.#due.delete(scope);
      const ask = scope.ask(exchange);
      if (ask !== undefined) asks.set(scope, ask);
    }
    if (this.#due.size === 0) this.#reportsAll = false;
  }

  #nextExchange(nowMs: number, { reportsAll }: { readonly reportsAll: boolean }): NextExchange {
    this.#exchangeNumber += 1;
    return { nowMs, periodOf: this.#periodOf, reportsAll, number: this.#exchangeNumber };
  }

  /** Has all scopes report all that is leased, because the coordinator may have granted it to others. */
  #reportScopes(): void {
    this.#reportsAll = true;
    for (const scope of this.#scopes.values()) this.#due.add(scope);
  }

  /** Whether others may soon be granted the call slots of this process (`silentMsMax`). Without it, never. */
  #othersMayGetSlots(nowMs: number): boolean {
    return nowMs - this.#heardMs >= Math.max(CUT_OFF_MS, this.#options.silentMsMax ?? Infinity);
  }

  #onLoss(error: CoordinatorLost, asked: Iterable<LeasedScope>, wasLost: boolean): void {
    this.#contact.recordFailure(error, this.#nowMs);
    if (error.reason === 'unknown_node') {
      this.#hasJoined = false;
      this.#reportScopes();
    }
    for (const scope of asked) this.#due.add(scope);
    this.#waits.onLoss();
    if (!wasLost) this.#options.onContact(this.#contact.state);
  }

  /**
   * Runs one timer while something is held or waited for. Also while the coordinator is lost, so that it is
   * found again before the first request needs it.
   */
  #runTimer(): void {
    if (this.#stopTimer !== undefined || this.#isClosed) return;
    if (this.#scopes.size === 0 && !this.#contact.isLost) return;
    const ms = this.#waits.size > 0 || this.#contact.isLost ? RETRY_MS : SWEEP_MS;
    this.#stopTimer = this.#options.timers.after(ms, () => {
      this.#stopTimer = undefined;
      this.#onTimer();
      this.#runTimer();
    });
  }

  #onTimer(): void {
    const nowMs = this.#nowMs;
    this.#waits.onTimer();
    if (nowMs - this.#sweptMs >= SWEEP_MS - TIMER_EARLY_MS) {
      this.#sweptMs = nowMs;
      this.#sweep(nowMs);
    }
    const isHeartbeatDue = nowMs - this.#contact.state.repliedMs >= HEARTBEAT_MS;
    if (this.#due.size > 0) this.#schedule();
    else if (isHeartbeatDue || this.#contact.isLost) void this.#exchange();
  }

  #sweep(nowMs: number): void {
    const othersMayGetSlots = this.#othersMayGetSlots(nowMs);
    const isCutOff = othersMayGetSlots || nowMs - this.#contact.state.repliedMs >= CUT_OFF_MS;
    for (const scope of this.#scopes.values()) {
      // Others may soon be granted these tokens and slots: see CUT_OFF_MS and `silentMsMax`.
      if (isCutOff) scope.minuteTokens?.giveBack();
      if (othersMayGetSlots) scope.slots?.setWithheld(true);
      if (scope.sweep(nowMs, { isAlone: this.#isAlone })) this.#due.add(scope);
      else this.#forgetIfEmpty(scope);
    }
  }

  #forgetIfEmpty(scope: LeasedScope): void {
    if (scope.isEmpty && !this.#due.has(scope)) this.#scopes.delete(nameOf(scope.address));
  }

  #followCalendar(wallMs: WallMs, hostWallMs: number, exchangeMs: number): void {
    // The coordinator read its calendar at some time within the exchange.
    const hostThenMs = hostWallMs - exchangeMs / 2;
    const aheadMs = wallMs - hostThenMs;
    const isNear = Math.abs(aheadMs - this.#aheadMs) <= exchangeMs;
    if (exchangeMs > CALENDAR_EXCHANGE_MS_MAX && isNear) return;
    this.#aheadMs = aheadMs;
    this.#options.onCalendar(wallMs, hostThenMs);
  }

  async #leave(): Promise<void> {
    const { coordinator } = this.#options;
    const nowMs = this.#nowMs;
    const exchange = this.#nextExchange(nowMs, { reportsAll: true });
    const asks = [...this.#scopes.values()].flatMap((scope) => {
      scope.giveBackAll(nowMs);
      return scope.ask(exchange) ?? [];
    });
    for (let first = 0; first < asks.length; first += EXCHANGE_ASKS_MAX)
      await coordinator.exchange(asks.slice(first, first + EXCHANGE_ASKS_MAX));
    await coordinator.leave();
  }
}

function nameOf({ kind, index }: LeaseScope): string {
  return `${kind} ${index}`;
}
