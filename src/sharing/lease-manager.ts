/**
 * Keeps what this node is granted: asks for what requests wait for and for what runs low, gives back what lies idle. Main thread.
 *
 * One exchange is on its way at a time, and what comes up meanwhile leaves with the next, so a busy node's exchanges grow and do
 * not multiply. Where nothing is held no timer runs, but while the coordinator is lost: an idle gateway says nothing.
 */
import type { MessagePort } from 'node:worker_threads';
import type { FromLeaseChannel, LeaseReplies, LeaseEnd, LeaseNeed } from '../channel/lease-channel.js';
import type { Clock } from '../core/clock.js';
import { type AccountIndex, asWallMs, type KeyIndex, type PicoUnits, type WallMs } from '../core/units.js';
import { dayNumberOf } from '../ledger/day.js';
import type { CallsUse } from './calls-use.js';
import { CoordinatorContact, type ContactState } from './coordinator-contact.js';
import {
  type Coordinator,
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type LeaseReply,
  type LeaseAsk,
} from './coordinator.js';
import type { LeaseTimers } from './lease-terms.js';
import { LeaseWaits } from './lease-waits.js';
import { type LeasedScope, LeasedScopes, type ScopeAddresses } from './leased-scope.js';

/** How often the coordinator is asked again for what others may have given back, and deadlines are looked at. */
const RETRY_MS = 60;
/** How often leases are looked at for what lies idle. */
const LOOK_MS = 250;
/** A node that holds something and says nothing for so long shows that it lives. */
const HEARTBEAT_MS = 5_000;
/** A response that took longer says too little of the coordinator's calendar. */
const CALENDAR_EXCHANGE_MS_MAX = 500;

export interface LeaseManagerOptions extends ScopeAddresses {
  readonly coordinator: Coordinator;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** Of 0 to 1. */
  readonly random: () => number;
  /** The coordinator's calendar showed `wallMs` when this host's showed `hostWallMs`. */
  readonly onCalendar: (wallMs: WallMs, hostWallMs: number) => void;
  /** The coordinator was lost, or answers again. */
  readonly onContact: (state: ContactState) => void;
}

export class LeaseManager {
  readonly #options: LeaseManagerOptions;
  readonly #contact: CoordinatorContact;
  readonly #scopes: LeasedScopes;
  /** To be in the next exchange. */
  readonly #due = new Set<LeasedScope>();
  readonly #waits: LeaseWaits;
  /** Exchanges that were begun. */
  #exchanges = 0;
  #exchanging: Promise<void> | undefined;
  #scheduled = false;
  #stopTimer: (() => void) | undefined;
  #lookedMs = 0;
  #joined = false;
  /** The last response was none of the coordinator's. */
  #isAlone = false;
  /** The coordinator may have forgotten what this node holds: all is said anew. */
  #saysAll = false;
  #closed = false;
  /** The coordinator's calendar against the host's. */
  #aheadMs = 0;

  constructor(options: LeaseManagerOptions) {
    this.#options = options;
    this.#contact = new CoordinatorContact(options.random);
    this.#scopes = new LeasedScopes(options);
    this.#waits = new LeaseWaits({
      nowMs: () => this.#nowMs,
      dayNumber: () => this.#dayNumber,
      isLost: () => this.#contact.isLost,
      ask: (scope) => {
        this.#due.add(scope);
        this.#schedule();
      },
    });
  }

  /** Joins the coordinator; where that fails it is tried again until it answers, be anything needed or not. */
  async start(): Promise<void> {
    await this.#exchange();
  }

  get state(): ContactState & { readonly scopes: number; readonly waits: number } {
    return {
      ...this.#contact.state,
      scopes: this.#scopes.size,
      waits: this.#waits.size,
    };
  }

  /** What the request needs is here, or not to be had. `key` where it has a limit of its own. Never rejects. */
  wait(account: AccountIndex, key: KeyIndex | undefined, need: LeaseNeed): Promise<LeaseEnd> {
    const scopes = [
      this.#scopes.account(account, this.#nowMs),
      key === undefined ? undefined : this.#scopes.key(key, this.#nowMs),
    ].filter((scope) => scope !== undefined);
    if (this.#closed || scopes.length === 0) return Promise.resolve('lost');
    const end = this.#waits.add(need, scopes);
    this.#keepTime();
    return end;
  }

  /** A listener has used most of what it was granted. */
  low(accounts: readonly AccountIndex[], keys: readonly KeyIndex[]): void {
    for (const account of accounts) this.#noteLow(this.#scopes.account(account, this.#nowMs));
    for (const key of keys) this.#noteLow(this.#scopes.key(key, this.#nowMs));
    this.#schedule();
  }

  /** What calls of this node use of the account now; undefined where nothing is leased. */
  callsUse(account: AccountIndex): CallsUse | undefined {
    return this.#scopes.findAccount(account)?.callsUse;
  }

  /** Gives back at once what no call holds of the account's money: an operator takes it out. */
  recallMoney(account: AccountIndex): void {
    const scope = this.#scopes.findAccount(account);
    if (scope === undefined) return;
    scope.giveBackMoney();
    this.#due.add(scope);
    this.#schedule();
  }

  /** So much of what the account's calls have cost beyond their holds is to be charged, or, 0, no more. */
  owe(account: AccountIndex, amount: PicoUnits): void {
    const scope =
      amount > 0n ? this.#scopes.account(account, this.#nowMs) : this.#scopes.findAccount(account);
    if (scope === undefined || this.#closed) return;
    scope.owe(amount);
    this.#due.add(scope);
    this.#schedule();
    this.#keepTime();
  }

  /** Gives back all that is unused and leaves the coordinator. The last flush is over. */
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

  get #dayNumber(): number {
    return dayNumberOf(asWallMs(this.#options.clock.wallMs() + this.#aheadMs));
  }

  #noteLow(scope: LeasedScope | undefined): void {
    if (scope === undefined) return;
    scope.low = true;
    this.#due.add(scope);
  }

  #schedule(): void {
    if (this.#scheduled || this.#exchanging !== undefined || this.#closed || this.#due.size === 0) return;
    this.#scheduled = true;
    this.#options.timers.soon(() => {
      this.#scheduled = false;
      if (!this.#closed) void this.#exchange();
    });
  }

  /** One exchange, and the next if something came up meanwhile. Never rejects. */
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
    const { coordinator: authority, clock } = this.#options;
    const asked: LeasedScope[] = [];
    const wasLost = this.#contact.isLost;
    try {
      if (!this.#joined) await authority.join();
      this.#joined = true;
      const asks: LeaseAsk[] = [];
      const sentMs = this.#nowMs;
      this.#exchanges += 1;
      for (const scope of this.#due) {
        if (asks.length === EXCHANGE_ASKS_MAX) break;
        this.#due.delete(scope);
        const ask = scope.ask(sentMs, this.#saysAll, this.#exchanges);
        if (ask === undefined) continue;
        asked.push(scope);
        asks.push(ask);
      }
      if (this.#due.size === 0) this.#saysAll = false;
      const { wallMs, answers: replies, isAlone = false } = await authority.exchange(asks);
      this.#isAlone = isAlone;
      const nowMs = this.#nowMs;
      this.#contact.answered(sentMs, nowMs);
      this.#follow(wallMs, clock.wallMs(), nowMs - sentMs);
      this.#take(asked, replies, sentMs, nowMs);
      if (wasLost) this.#options.onContact(this.#contact.state);
    } catch (error) {
      if (!(error instanceof CoordinatorLost)) throw error;
      this.#lose(error, asked, wasLost);
    }
  }

  #take(asked: readonly LeasedScope[], replies: readonly LeaseReply[], sentMs: number, nowMs: number): void {
    for (const [at, scope] of asked.entries()) scope.take(replies[at]!, sentMs, nowMs);
    this.#waits.answered(asked);
    for (const scope of asked) this.#forgetIfEmpty(scope);
  }

  #lose(error: CoordinatorLost, asked: readonly LeasedScope[], wasLost: boolean): void {
    this.#contact.failed(error, this.#nowMs);
    if (error.reason === 'unknown_node') {
      this.#joined = false;
      this.#saysAll = true;
      for (const scope of this.#scopes) this.#due.add(scope);
    }
    for (const scope of asked) this.#due.add(scope);
    this.#waits.lost();
    if (!wasLost) this.#options.onContact(this.#contact.state);
  }

  /**
   * One timer while something is held or waited for, or the coordinator is lost: the first request after a start without it is not to
   * be refused for that.
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
    const isSilent = nowMs - this.#contact.state.answeredMs >= HEARTBEAT_MS;
    if (this.#due.size > 0) this.#schedule();
    else if (isSilent || this.#contact.isLost) void this.#exchange();
  }

  #look(nowMs: number): void {
    for (const scope of this.#scopes) {
      if (scope.look(nowMs, this.#isAlone)) this.#due.add(scope);
      else this.#forgetIfEmpty(scope);
    }
  }

  #forgetIfEmpty(scope: LeasedScope): void {
    if (scope.isEmpty && !this.#due.has(scope)) this.#scopes.forget(scope);
  }

  #follow(wallMs: WallMs, hostWallMs: number, exchangeMs: number): void {
    if (exchangeMs > CALENDAR_EXCHANGE_MS_MAX) return;
    // The coordinator read its calendar somewhere within the exchange.
    const hostThenMs = hostWallMs - exchangeMs / 2;
    this.#aheadMs = wallMs - hostThenMs;
    this.#options.onCalendar(wallMs, hostThenMs);
  }

  async #leave(): Promise<void> {
    const { coordinator: authority } = this.#options;
    const nowMs = this.#nowMs;
    const asks: LeaseAsk[] = [];
    this.#exchanges += 1;
    for (const scope of this.#scopes) {
      scope.giveBackAll(nowMs);
      const ask = scope.ask(nowMs, true, this.#exchanges);
      if (ask !== undefined) asks.push(ask);
    }
    for (let first = 0; first < asks.length; first += EXCHANGE_ASKS_MAX) {
      await authority.exchange(asks.slice(first, first + EXCHANGE_ASKS_MAX));
    }
    await authority.leave();
  }
}

/*
 * Answers listeners that wait for leases. Main thread.
 */

/** Serves a listener behind `port`, which closes when its thread ends: what is answered then goes nowhere. */
export function serveLeases(manager: LeaseManager, port: MessagePort): void {
  let replies: { id: number; end: LeaseReplies[number]['end'] }[] = [];
  const reply = (id: number, end: LeaseReplies[number]['end']): void => {
    // What is decided in one turn goes as one message.
    if (replies.push({ id, end }) > 1) return;
    setImmediate(() => {
      port.postMessage(replies satisfies LeaseReplies);
      replies = [];
    });
  };
  port.on('message', ({ questions, lowAccounts, lowKeys }: FromLeaseChannel) => {
    for (const { id, account, key, need } of questions) {
      void manager.wait(account, key, need).then((end) => reply(id, end));
    }
    if (lowAccounts.length > 0 || lowKeys.length > 0) manager.low(lowAccounts, lowKeys);
  });
}
