/**
 * Keeps what this node is lent: asks for what requests wait for and for what runs low, gives back what lies idle. Main thread.
 *
 * One exchange is on its way at a time, and what comes up meanwhile leaves with the next, so a busy node's exchanges grow and do
 * not multiply. Where nothing is held no timer runs, but while the authority is lost: an idle gateway says nothing.
 */
import type { MessagePort } from 'node:worker_threads';
import type { FromLeaseLink, LeaseAnswers, LeaseEnd, LeaseNeed } from '../channel/lease-channel.js';
import type { Clock } from '../core/clock.js';
import { type AccountIndex, asWallMs, type KeyIndex, type PicoUnits, type WallMs } from '../core/units.js';
import { dayNumberOf } from '../ledger/day.js';
import type { CallsUse } from './calls-use.js';
import { AuthorityContact, type ContactState } from './coordinator-contact.js';
import {
  type Authority,
  AuthorityLost,
  EXCHANGE_ASKS_MAX,
  type LeaseAnswer,
  type LeaseAsk,
} from './coordinator.js';
import type { LeaseTimers } from './lease-terms.js';
import { LeaseWaits } from './lease-waits.js';
import { type LeaseSubject, LeaseSubjects, type SubjectPlaces } from './leased-scope.js';

/** How often the authority is asked again for what others may have given back, and deadlines are looked at. */
const RETRY_MS = 60;
/** How often leases are looked at for what lies idle. */
const LOOK_MS = 250;
/** A node that holds something and says nothing for so long shows that it lives. */
const HEARTBEAT_MS = 5_000;
/** An answer that took longer says too little of the authority's calendar. */
const CALENDAR_EXCHANGE_MS_MAX = 500;

export interface LeaseKeeperOptions extends SubjectPlaces {
  readonly authority: Authority;
  readonly clock: Clock;
  readonly timers: LeaseTimers;
  /** Of 0 to 1. */
  readonly random: () => number;
  /** The authority's calendar showed `wallMs` when this host's showed `hostWallMs`. */
  readonly onCalendar: (wallMs: WallMs, hostWallMs: number) => void;
  /** The authority was lost, or answers again. */
  readonly onContact: (state: ContactState) => void;
}

export class LeaseKeeper {
  readonly #options: LeaseKeeperOptions;
  readonly #contact: AuthorityContact;
  readonly #subjects: LeaseSubjects;
  /** To be in the next exchange. */
  readonly #due = new Set<LeaseSubject>();
  readonly #waits: LeaseWaits;
  /** Exchanges that were begun. */
  #exchanges = 0;
  #exchanging: Promise<void> | undefined;
  #scheduled = false;
  #stopTimer: (() => void) | undefined;
  #lookedMs = 0;
  #joined = false;
  /** The last answer was none of the authority's. */
  #isAlone = false;
  /** The authority may have forgotten what this node holds: all is said anew. */
  #saysAll = false;
  #closed = false;
  /** The authority's calendar against the host's. */
  #aheadMs = 0;

  constructor(options: LeaseKeeperOptions) {
    this.#options = options;
    this.#contact = new AuthorityContact(options.random);
    this.#subjects = new LeaseSubjects(options);
    this.#waits = new LeaseWaits({
      nowMs: () => this.#nowMs,
      dayNumber: () => this.#dayNumber,
      isLost: () => this.#contact.isLost,
      ask: (subject) => {
        this.#due.add(subject);
        this.#schedule();
      },
    });
  }

  /** Joins the authority; where that fails it is tried again until it answers, be anything needed or not. */
  async start(): Promise<void> {
    await this.#exchange();
  }

  get state(): ContactState & { readonly subjects: number; readonly waits: number } {
    return {
      ...this.#contact.state,
      subjects: this.#subjects.size,
      waits: this.#waits.size,
    };
  }

  /** What the request needs is here, or not to be had. `key` where it has a limit of its own. Never rejects. */
  wait(account: AccountIndex, key: KeyIndex | undefined, need: LeaseNeed): Promise<LeaseEnd> {
    const subjects = [
      this.#subjects.account(account, this.#nowMs),
      key === undefined ? undefined : this.#subjects.key(key, this.#nowMs),
    ].filter((subject) => subject !== undefined);
    if (this.#closed || subjects.length === 0) return Promise.resolve('lost');
    const end = this.#waits.add(need, subjects);
    this.#keepTime();
    return end;
  }

  /** A listener has used most of what it was lent. */
  low(accounts: readonly AccountIndex[], keys: readonly KeyIndex[]): void {
    for (const account of accounts) this.#noteLow(this.#subjects.account(account, this.#nowMs));
    for (const key of keys) this.#noteLow(this.#subjects.key(key, this.#nowMs));
    this.#schedule();
  }

  /** What calls of this node use of the account now; undefined where nothing is leased. */
  callsUse(account: AccountIndex): CallsUse | undefined {
    return this.#subjects.findAccount(account)?.callsUse;
  }

  /** Gives back at once what no call holds of the account's money: an operator takes it out. */
  recallMoney(account: AccountIndex): void {
    const subject = this.#subjects.findAccount(account);
    if (subject === undefined) return;
    subject.giveBackMoney();
    this.#due.add(subject);
    this.#schedule();
  }

  /** So much of what the account's calls have cost beyond their holds is to be charged, or, 0, no more. */
  owe(account: AccountIndex, amount: PicoUnits): void {
    const subject =
      amount > 0n ? this.#subjects.account(account, this.#nowMs) : this.#subjects.findAccount(account);
    if (subject === undefined || this.#closed) return;
    subject.owe(amount);
    this.#due.add(subject);
    this.#schedule();
    this.#keepTime();
  }

  /** Gives back all that is unused and leaves the authority. The last flush is over. */
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
    await this.#options.authority.close();
  }

  get #nowMs(): number {
    return this.#options.clock.monotonicMs();
  }

  get #dayNumber(): number {
    return dayNumberOf(asWallMs(this.#options.clock.wallMs() + this.#aheadMs));
  }

  #noteLow(subject: LeaseSubject | undefined): void {
    if (subject === undefined) return;
    subject.low = true;
    this.#due.add(subject);
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
    const { authority, clock } = this.#options;
    const asked: LeaseSubject[] = [];
    const wasLost = this.#contact.isLost;
    try {
      if (!this.#joined) await authority.join();
      this.#joined = true;
      const asks: LeaseAsk[] = [];
      const sentMs = this.#nowMs;
      this.#exchanges += 1;
      for (const subject of this.#due) {
        if (asks.length === EXCHANGE_ASKS_MAX) break;
        this.#due.delete(subject);
        const ask = subject.ask(sentMs, this.#saysAll, this.#exchanges);
        if (ask === undefined) continue;
        asked.push(subject);
        asks.push(ask);
      }
      if (this.#due.size === 0) this.#saysAll = false;
      const { wallMs, answers, isAlone = false } = await authority.exchange(asks);
      this.#isAlone = isAlone;
      const nowMs = this.#nowMs;
      this.#contact.answered(sentMs, nowMs);
      this.#follow(wallMs, clock.wallMs(), nowMs - sentMs);
      this.#take(asked, answers, sentMs, nowMs);
      if (wasLost) this.#options.onContact(this.#contact.state);
    } catch (error) {
      if (!(error instanceof AuthorityLost)) throw error;
      this.#lose(error, asked, wasLost);
    }
  }

  #take(
    asked: readonly LeaseSubject[],
    answers: readonly LeaseAnswer[],
    sentMs: number,
    nowMs: number,
  ): void {
    for (const [at, subject] of asked.entries()) subject.take(answers[at]!, sentMs, nowMs);
    this.#waits.answered(asked);
    for (const subject of asked) this.#forgetIfEmpty(subject);
  }

  #lose(error: AuthorityLost, asked: readonly LeaseSubject[], wasLost: boolean): void {
    this.#contact.failed(error, this.#nowMs);
    if (error.reason === 'unknown_node') {
      this.#joined = false;
      this.#saysAll = true;
      for (const subject of this.#subjects) this.#due.add(subject);
    }
    for (const subject of asked) this.#due.add(subject);
    this.#waits.lost();
    if (!wasLost) this.#options.onContact(this.#contact.state);
  }

  /**
   * One timer while something is held or waited for, or the authority is lost: the first request after a start without it is not to
   * be refused for that.
   */
  #keepTime(): void {
    if (this.#stopTimer !== undefined || this.#closed) return;
    if (this.#subjects.size === 0 && !this.#contact.isLost) return;
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
    for (const subject of this.#subjects) {
      if (subject.look(nowMs, this.#isAlone)) this.#due.add(subject);
      else this.#forgetIfEmpty(subject);
    }
  }

  #forgetIfEmpty(subject: LeaseSubject): void {
    if (subject.isEmpty && !this.#due.has(subject)) this.#subjects.forget(subject);
  }

  #follow(wallMs: WallMs, hostWallMs: number, exchangeMs: number): void {
    if (exchangeMs > CALENDAR_EXCHANGE_MS_MAX) return;
    // The authority read its calendar somewhere within the exchange.
    const hostThenMs = hostWallMs - exchangeMs / 2;
    this.#aheadMs = wallMs - hostThenMs;
    this.#options.onCalendar(wallMs, hostThenMs);
  }

  async #leave(): Promise<void> {
    const { authority } = this.#options;
    const nowMs = this.#nowMs;
    const asks: LeaseAsk[] = [];
    this.#exchanges += 1;
    for (const subject of this.#subjects) {
      subject.giveBackAll(nowMs);
      const ask = subject.ask(nowMs, true, this.#exchanges);
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
export function serveLeases(keeper: LeaseKeeper, port: MessagePort): void {
  let answers: { id: number; end: LeaseAnswers[number]['end'] }[] = [];
  const answer = (id: number, end: LeaseAnswers[number]['end']): void => {
    // What is decided in one turn goes as one message.
    if (answers.push({ id, end }) > 1) return;
    setImmediate(() => {
      port.postMessage(answers satisfies LeaseAnswers);
      answers = [];
    });
  };
  port.on('message', ({ questions, lowAccounts, lowKeys }: FromLeaseLink) => {
    for (const { id, account, key, need } of questions) {
      void keeper.wait(account, key, need).then((end) => answer(id, end));
    }
    if (lowAccounts.length > 0 || lowKeys.length > 0) keeper.low(lowAccounts, lowKeys);
  });
}
