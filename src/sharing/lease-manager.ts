/**
 * Manages the leases of this process: asks the coordinator for what requests wait for and for what runs low,
 * and gives back what lies idle. Listeners reach it through `serveLeases`. Main thread.
 *
 * One exchange is under way at a time, and what comes up meanwhile leaves with the next: exchanges of a busy
 * process grow in size, not in number. While nothing is held no timer runs, unless the coordinator is lost.
 *
 * Must hold: one exchange at a time, every wait ends, an idle gateway sends nothing, and once others may be
 * granted what is leased here, no call is admitted from it (test/unit/sharing/lease-manager.test.ts,
 * test/unit/sharing/lease-laws.test.ts).
 */
import type { MessagePort } from 'node:worker_threads';
import type { LeaseEnd, LeaseMessages, LeaseNeed, LeaseScope } from '../channel/lease-channel.js';
import type { AskReply } from '../core/ask-port.js';
import type { Clock } from '../core/clock.js';
import type { Calendar } from '../core/quotas.js';
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
import type { LeaseTimers } from './lease-terms.js';
import { LeaseWaits } from './lease-waits.js';
import { type Asking, LeasedScope, type ScopeAddress, stocksIn } from './leased-scope.js';
import type { CallsUse, ManagerState } from './sharing-stats.js';

/** How often waits ask again for what others may have given back, and deadlines are checked. */
const RETRY_MS = 60;
/** How often leases are checked for what lies idle. */
const LOOK_MS = 250;
/** A process that holds something sends a heartbeat after so long a silence. */
const HEARTBEAT_MS = 5_000;
/** After so long without the coordinator tokens of the minute are not taken: see `drop_silent`. */
export const CUT_OFF_MS = 30_000;
/** A reply that took longer says too little about the coordinator's calendar, unless that is far off. */
const CALENDAR_EXCHANGE_MS_MAX = 500;

export interface LeaseManagerOptions {
  /** Undefined for a scope that is not known. */
  readonly addressOf: (scope: LeaseScope) => ScopeAddress | undefined;
  /** The groups that the account is in, from the leaf up. */
  readonly groupsOf?: (account: number) => readonly number[];
  /** For all days and months but those of calls a day, whose time zone is fixed. */
  readonly calendar: Calendar;
  readonly coordinator: Coordinator;
  /**
   * If the coordinator has not replied for so long, no call begins that takes a slot: before it ends, others
   * may be granted it. Each account limits its calls in flight, so none begins at all. Default: never.
   */
  readonly silentMsMax?: number | undefined;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** In [0, 1). */
  readonly random: () => number;
  /** Called when the coordinator's calendar showed `wallMs` as this host's showed `hostWallMs`. */
  readonly onCalendar: (wallMs: WallMs, hostWallMs: number) => void;
  /** Called once when the coordinator is lost, and once when it answers again. */
  readonly onContact: (state: ContactState) => void;
}

export class LeaseManager {
  readonly #options: LeaseManagerOptions;
  readonly #contact: CoordinatorContact;
  /** The scopes of which something is leased or waited for, by `nameOf`. */
  readonly #scopes = new Map<string, LeasedScope>();
  readonly #due = new Set<LeasedScope>(); // for the next exchange
  readonly #waits: LeaseWaits;
  #exchanges = 0; // begun so far
  #exchanging: Promise<void> | undefined;
  /** Whether the next exchange begins at the end of this event-loop turn. */
  #scheduled = false;
  #stopTimer: (() => void) | undefined;
  /** When leases were last checked for what lies idle. */
  #lookedMs = 0;
  #joined = false;
  /** Whether this node itself made the last reply, because it is cut off. */
  #isAlone = false;
  /** When the last exchange was sent to which the coordinator itself replied. */
  #heardMs = Infinity;
  /** The coordinator may have forgotten what this process holds: every scope is reported anew. */
  #reportsAll = false;
  #closed = false;
  #aheadMs = 0; // of the coordinator's calendar, before the host's

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
      if (this.#contact.isLost && !this.#closed) void this.#exchange();
    };
  }

  /** Joins the coordinator, and tries again until it works, whether leases are needed or not. */
  start(): Promise<void> {
    return this.#exchange();
  }

  get state(): ManagerState {
    return { ...this.#contact.state, scopes: this.#scopes.size, waits: this.#waits.size };
  }

  /** Resolves when the need is met or cannot be, also by the groups of the accounts. Never rejects. */
  wait(scopes: readonly LeaseScope[], need: LeaseNeed): Promise<LeaseEnd> {
    const { groupsOf } = this.#options;
    const groups = scopes.flatMap(({ kind, index }) => (kind === 'account' ? (groupsOf?.(index) ?? []) : []));
    const known = [...scopes, ...groups.map((index): LeaseScope => ({ kind: 'group', index }))]
      .map((scope) => this.#open(scope))
      .filter((scope) => scope !== undefined);
    if (this.#closed || known.length === 0) return Promise.resolve('lost');
    const end = this.#waits.add(need, known);
    this.#keepTime();
    return end;
  }

  /** Call it when threads have used most of what is leased of these scopes. */
  low(scopes: readonly LeaseScope[]): void {
    for (const address of scopes) {
      const scope = this.#open(address);
      if (scope === undefined) continue;
      scope.low = true;
      this.#ask(scope);
    }
  }

  /** What calls of this process use of the scope now; undefined if it is not known. */
  callsUse(scope: LeaseScope): Omit<CallsUse, 'slot'> | undefined {
    const leased = this.#scopes.get(nameOf(scope));
    const address = leased?.address ?? this.#options.addressOf(scope);
    if (address === undefined) return undefined;
    // A scope without leases has nothing unused, and no ask under way.
    const { unused = 0, heardNumber = this.#exchanges } = leased?.minute ?? {};
    return { scope: address.scope, minute: { unused, heardNumber }, stocks: stocksIn(address) };
  }

  /** Gives back at once the account's money that no call holds, because an operator debits the account. */
  recallMoney(account: AccountIndex): void {
    const scope = this.#scopes.get(nameOf({ kind: 'account', index: account }));
    if (scope === undefined) return;
    scope.stock('balance')?.giveBack();
    this.#ask(scope);
  }

  /** Sets how much of the account's uncovered charges is to be collected; 0 ends that. */
  setUncovered(account: AccountIndex, amount: PicoUnits): void {
    const address: LeaseScope = { kind: 'account', index: account };
    const scope = amount > 0n ? this.#open(address) : this.#scopes.get(nameOf(address));
    if (scope === undefined || this.#closed) return;
    scope.openStock('balance', this.#nowMs)?.setUncovered(amount);
    this.#ask(scope);
    this.#keepTime();
  }

  /** Gives back all that is unused and leaves the coordinator. Call it after the last flush. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#stopTimer?.();
    this.#waits.close();
    await this.#exchanging;
    try {
      if (this.#joined) await this.#leave();
    } catch (error) {
      this.#contact.failed(error, this.#nowMs);
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

  /** The leases of the scope, which begin here if there are none; undefined if the scope is not known. */
  #open(scope: LeaseScope): LeasedScope | undefined {
    const name = nameOf(scope);
    const known = this.#scopes.get(name);
    if (known !== undefined) return known;
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
    if (this.#scheduled || this.#exchanging !== undefined || this.#closed || this.#due.size === 0) return;
    this.#scheduled = true;
    this.#options.timers.soon(() => {
      this.#scheduled = false;
      if (!this.#closed) void this.#exchange();
    });
  }

  /** Makes one exchange, and the next if something came up meanwhile. Never rejects. */
  async #exchange(): Promise<void> {
    if (this.#exchanging !== undefined || !this.#contact.mayTry(this.#nowMs)) return;
    const exchanging = this.#exchangeOnce();
    this.#exchanging = exchanging;
    await exchanging;
    this.#exchanging = undefined;
    this.#keepTime();
    this.#schedule();
  }

  async #exchangeOnce(): Promise<void> {
    const { coordinator, clock } = this.#options;
    const asks = new Map<LeasedScope, LeaseAsk>();
    const wasLost = this.#contact.isLost;
    try {
      if (!this.#joined) await this.#join();
      const sentMs = this.#nowMs;
      this.#takeAsks(asks, sentMs);
      const { wallMs, answers: replies, isAlone = false } = await coordinator.exchange([...asks.values()]);
      this.#isAlone = isAlone;
      const nowMs = this.#nowMs;
      this.#contact.answered(sentMs, nowMs);
      // A node that replies to itself has only the host's calendar: the last known difference holds.
      if (!isAlone) {
        this.#follow(wallMs, clock.wallMs(), nowMs - sentMs);
        // After a silence it may know nothing more of what was withheld, so all scopes say what they hold.
        if (nowMs - this.#heardMs >= CUT_OFF_MS) this.#reportScopes();
        this.#heardMs = sentMs;
      }
      const isSilent = this.#isSilent(nowMs);
      const asked = [...asks.keys()];
      for (const [index, scope] of asked.entries()) {
        scope.stock('calls_in_flight')?.withhold(isSilent);
        scope.take(replies[index]!, sentMs, nowMs);
      }
      this.#waits.answered(asked);
      for (const scope of asked) this.#forgetIfEmpty(scope);
      if (wasLost) this.#options.onContact(this.#contact.state);
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
      this.#lose(error, asks.keys(), wasLost);
    }
  }

  /** The coordinator's calendar is known before anything is asked of a day. */
  async #join(): Promise<void> {
    const sentMs = this.#nowMs;
    const { wallMs } = await this.#options.coordinator.join();
    this.#follow(wallMs, this.#options.clock.wallMs(), this.#nowMs - sentMs);
    this.#joined = true;
  }

  /** Begins an exchange: moves the scopes that are due to `asks`, as many as one exchange carries. */
  #takeAsks(asks: Map<LeasedScope, LeaseAsk>, nowMs: number): void {
    const asking = this.#nextAsking(nowMs, this.#reportsAll);
    for (const scope of this.#due) {
      if (asks.size === EXCHANGE_ASKS_MAX) break;
      this.#due.delete(scope);
      const ask = scope.ask(asking);
      if (ask !== undefined) asks.set(scope, ask);
    }
    if (this.#due.size === 0) this.#reportsAll = false;
  }

  #nextAsking(nowMs: number, all: boolean): Asking {
    this.#exchanges += 1;
    return { nowMs, periodOf: this.#periodOf, all, number: this.#exchanges };
  }

  /** Puts all scopes into the next exchange. */
  #reportScopes(): void {
    for (const scope of this.#scopes.values()) this.#due.add(scope);
  }

  /** Whether others may soon be granted what is leased here. */
  #isSilent(nowMs: number): boolean {
    return nowMs - this.#heardMs >= Math.max(CUT_OFF_MS, this.#options.silentMsMax ?? Infinity);
  }

  #lose(error: CoordinatorLost, asked: Iterable<LeasedScope>, wasLost: boolean): void {
    this.#contact.failed(error, this.#nowMs);
    if (error.reason === 'unknown_node') {
      this.#joined = false;
      this.#reportsAll = true;
      this.#reportScopes();
    }
    for (const scope of asked) this.#due.add(scope);
    this.#waits.lost();
    if (!wasLost) this.#options.onContact(this.#contact.state);
  }

  /**
   * Runs one timer while something is held or waited for, or while the coordinator is lost: the first request
   * after a start without the coordinator must not be refused for that.
   */
  #keepTime(): void {
    if (this.#stopTimer !== undefined || this.#closed) return;
    if (this.#scopes.size === 0 && !this.#contact.isLost) return;
    const ms = this.#waits.size > 0 || this.#contact.isLost ? RETRY_MS : LOOK_MS;
    this.#stopTimer = this.#options.timers.after(ms, () => {
      this.#stopTimer = undefined;
      this.#onTime();
      this.#keepTime();
    });
  }

  #onTime(): void {
    const nowMs = this.#nowMs;
    this.#waits.onTime();
    // A timer may come a fraction of a millisecond early.
    if (nowMs - this.#lookedMs >= LOOK_MS - 1) {
      this.#lookedMs = nowMs;
      this.#look(nowMs);
    }
    const isSilent = nowMs - this.#contact.state.repliedMs >= HEARTBEAT_MS;
    if (this.#due.size > 0) this.#schedule();
    else if (isSilent || this.#contact.isLost) void this.#exchange();
  }

  #look(nowMs: number): void {
    const isSilent = this.#isSilent(nowMs);
    const isCutOff = isSilent || nowMs - this.#contact.state.repliedMs >= CUT_OFF_MS;
    for (const scope of this.#scopes.values()) {
      // Others may soon be granted these: see `drop_silent` in valkey-scripts.ts.
      if (isCutOff) scope.stock('tokens_per_minute')?.giveBack();
      if (isSilent) scope.stock('calls_in_flight')?.withhold(true);
      if (scope.look(nowMs, this.#isAlone)) this.#due.add(scope);
      else this.#forgetIfEmpty(scope);
    }
  }

  #forgetIfEmpty(scope: LeasedScope): void {
    if (scope.isEmpty && !this.#due.has(scope)) this.#scopes.delete(nameOf(scope.address));
  }

  #follow(wallMs: WallMs, hostWallMs: number, exchangeMs: number): void {
    // The coordinator read its calendar somewhere within the exchange.
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
    const asking = this.#nextAsking(nowMs, true);
    const asks = [...this.#scopes.values()].flatMap((scope) => {
      scope.giveBackAll(nowMs);
      return scope.ask(asking) ?? [];
    });
    for (let first = 0; first < asks.length; first += EXCHANGE_ASKS_MAX)
      await coordinator.exchange(asks.slice(first, first + EXCHANGE_ASKS_MAX));
    await coordinator.leave();
  }
}

function nameOf({ kind, index }: LeaseScope): string {
  return `${kind} ${index}`;
}

/** Answers the requests for leases that a listener or a worker sends through `port`. */
export function serveLeases(manager: LeaseManager, port: MessagePort): void {
  let replies: AskReply<LeaseEnd>[] = [];
  const reply = (id: number, answer: LeaseEnd): void => {
    // Replies of one event-loop turn are sent as one message.
    if (replies.push({ id, ok: true, result: answer }) > 1) return;
    setImmediate(() => {
      port.postMessage(replies);
      replies = [];
    });
  };
  port.on('message', (messages: LeaseMessages) => {
    const low: LeaseScope[] = [];
    for (const message of messages) {
      if ('ask' in message) {
        const { scopes, need } = message.ask;
        void manager.wait(scopes, need).then((end) => reply(message.id, end));
      } else low.push(message);
    }
    if (low.length > 0) manager.low(low);
  });
}
