/**
 * A node of the coordinator of hosts, that shows that it lives, and what it does when it is cut off. Main thread.
 *
 * It says something every few seconds, also when it holds nothing: after a loss of data the server waits for every node.
 *
 * Without the coordinator, by the setting `on_authority_loss: equal_share`, its calls are granted what was set aside for them before
 * (fallback quota.ts). Of the day and of money there is no more until it has come back. Of the minute there is: a node that has been
 * cut off for long gives itself an equal share of each limit.
 *
 * Why the limit holds in a cut that parts the nodes: the server holds the share of a node back once it has heard nothing of it
 * for SILENT_MS, until expiry and for a window after it has come back. What was granted before that weighs for QUARANTINE_MS at
 * the most. A node begins only when both are over, counted from the last moment at which the server may have heard it (a message
 * may take as long as SILENT_MS: one that takes longer finds its node held back already); it ends at its first contact, or at
 * expiry. Where the server is gone, all nodes have their shares, which are the limit at the most.
 *
 * A node that has never joined in its life has no share: its earlier life may have used it.
 */
import type { Clock } from '../core/clock.js';
import { asPicoUnits } from '../core/units.js';
import { CoordinatorContact, wasNotSent } from './coordinator-contact.js';
import {
  type Coordinator,
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type ExchangeReply,
  type JoinReply,
  type LeaseReply,
  type LeaseAsk,
  type MinuteAsk,
  type MinuteGrant,
  type NodeIdentity,
  type ScopeView,
} from './coordinator.js';
import type { StandBy } from './fallback-coordinator.js';
import type { Granted } from './fallback-quota.js';
import { type LeaseTimers, SYSTEM_TIMERS } from './lease-terms.js';
import { MemoryCoordinator } from './memory-coordinator.js';
import { QUARANTINE_MS, SILENT_MS } from './valkey-lua.js';

/*
 * What a node answers its own calls with while the coordinator cannot be reached. Pure; main thread.
 */

/** Below those of the own share: permits that the server granted to the fallback quota, and that are not returned. */
const STAND_BY_TICK = Number.MIN_SAFE_INTEGER;

/** Permits of the own share have ticks below 0, and are none that the server knows. */
export function withoutOwnTicks(ask: LeaseAsk): LeaseAsk {
  const { minute } = ask;
  if (minute === undefined || minute.returned.every(({ tick }) => tick >= 0)) return ask;
  const own: MinuteAsk = { ...minute, returned: minute.returned.filter(({ tick }) => tick >= 0) };
  return { ...ask, minute: own };
}

/**
 * Of the minute by the share where there is one (`own`), else by what is set aside. Where that is too little: to be told that there is
 * none would be wrong, for there may be some, and only the server knows.
 */
export function loneReply(
  ask: LeaseAsk,
  own: LeaseReply | undefined,
  granted: Granted | undefined,
): LeaseReply {
  const { minute, day, slots, money } = ask;
  const minuteGrant = minute && minuteOf(minute, own?.minute, granted?.minute);
  const dayGranted = granted?.day?.count ?? 0;
  const slotsGranted = granted?.slots ?? 0;
  const moneyGranted = granted?.money ?? 0n;
  const isUnknown =
    (minute !== undefined && own === undefined && minute.least > minuteGrant!.granted) ||
    (day !== undefined && day.least > dayGranted) ||
    (slots !== undefined && slots.least > slotsGranted) ||
    (money !== undefined && money.least > moneyGranted);
  return {
    ...(minuteGrant === undefined ? {} : { minute: minuteGrant }),
    ...(day === undefined
      ? {}
      : {
          day: { ...countOf(dayGranted), dayNumber: granted?.day?.dayNumber ?? day.dayNumber, endsInMs: 0 },
        }),
    ...(slots === undefined ? {} : { slots: countOf(slotsGranted) }),
    ...(money === undefined
      ? {}
      : { money: { granted: asPicoUnits(moneyGranted), remaining: asPicoUnits(0n), heldByOthers: true } }),
    ...(isUnknown ? { isUnknown } : {}),
  };
}

function minuteOf(
  { forMs }: MinuteAsk,
  own: MinuteGrant | undefined,
  granted: Granted['minute'],
): MinuteGrant {
  if (own !== undefined) return { ...own, tick: -1 - own.tick, heldByOthers: false };
  const { count, validMs } = granted ?? { count: 0, validMs: forMs };
  return { ...countOf(count), tick: STAND_BY_TICK, validMs, freeInMs: 0 };
}

function countOf(granted: number): { granted: number; remaining: number; heldByOthers: boolean } {
  return { granted, remaining: 0, heldByOthers: true };
}

/*
 * What a node holds by state while the coordinator cannot be reached, for the coordinator to be told of before anything else: the
 * newest that was said of each scope, with what was granted since. Main thread.
 *
 * Bounded by the accounts and keys of the ledger.
 */

const NOTHING = asPicoUnits(0n);

export class UnreportedAsks {
  readonly #asks = new Map<string, LeaseAsk>();

  get size(): number {
    return this.#asks.size;
  }

  /** `ask` was answered here. */
  note({ scope: subject, limits, day, slots, money }: LeaseAsk, reply: LeaseReply): void {
    const before = this.#asks.get(subject);
    const told: LeaseAsk = {
      ...before,
      scope: subject,
      limits,
      ...(day === undefined
        ? {}
        : { day: { ...day, unused: day.unused + (reply.day?.granted ?? 0), least: 0, most: 0 } }),
      ...(slots === undefined
        ? {}
        : { slots: { outstanding: slots.outstanding + (reply.slots?.granted ?? 0), least: 0, most: 0 } }),
      ...(money === undefined
        ? {}
        : {
            money: {
              ...money,
              outstanding: asPicoUnits(money.outstanding + (reply.money?.granted ?? 0n)),
              least: NOTHING,
              most: NOTHING,
            },
          }),
    };
    this.#asks.set(subject, told);
  }

  /** The next ones to be told, at most as many as one exchange carries. */
  page(): LeaseAsk[] {
    const page: LeaseAsk[] = [];
    for (const ask of this.#asks.values()) {
      if (page.length === EXCHANGE_ASKS_MAX) break;
      page.push(ask);
    }
    return page;
  }

  /** The coordinator has them. What was said anew of a scope meanwhile stays. */
  told(page: readonly LeaseAsk[]): void {
    for (const ask of page) if (this.#asks.get(ask.scope) === ask) this.#asks.delete(ask.scope);
  }
}

/** From the last moment at which the server may have heard the node. */
export const SHARE_BEGINS_MS = 2 * SILENT_MS + QUARANTINE_MS;
/** An idle node says that it lives: its share would be held back otherwise. */
const HEARTBEAT_MS = SILENT_MS / 4;

export interface EqualShareOptions {
  readonly coordinator: Coordinator;
  readonly node: NodeIdentity;
  readonly clock: Clock;
  /** Nodes of all hosts, by the settings; 0 where none has a share. */
  readonly shares: number;
  readonly nodeExpiryMs: number;
  /** What is set aside, where there are shares: makes it for this node. */
  readonly openStandBy?: (mayTell: () => boolean) => StandBy;
  /** Calls are granted what is here, for that reason; or, undefined, by the coordinator again. */
  readonly onAlone?: (reason: string | undefined) => void;
  /** Of 0 to 1. Default Math.random. */
  readonly random?: () => number;
  /** Default those of the system. */
  readonly timers?: LeaseTimers;
}

export class EqualShare implements Coordinator {
  readonly #options: EqualShareOptions;
  readonly #own: Coordinator;
  readonly #standBy: StandBy | undefined;
  readonly #unreported = new UnreportedAsks();
  readonly #contact: CoordinatorContact;
  #heardMs = Infinity;
  #alone = false;
  #beating = false;
  #last: Promise<unknown> = Promise.resolve();
  #stopHeartbeat: (() => void) | undefined;
  #left = false;

  constructor(options: EqualShareOptions) {
    this.#options = options;
    this.#own = new MemoryCoordinator(options.clock).connect(options.node);
    this.#contact = new CoordinatorContact(options.random ?? Math.random);
    if (options.shares > 0)
      this.#standBy = options.openStandBy?.(() => !this.#contact.isLost && this.#unreported.size === 0);
  }

  /** Since the server may last have heard the node; below 0 where it never has. */
  get silentMs(): number {
    return this.#options.clock.monotonicMs() - this.#heardMs;
  }

  /** Whether calls are granted what is here. */
  get isAlone(): boolean {
    return this.#alone;
  }

  async join(): Promise<JoinReply> {
    const reply = await this.#inTurn(() => this.#options.coordinator.join());
    await this.#own.join();
    if (this.#stopHeartbeat === undefined) {
      this.#standBy?.start();
      this.#keepBeating();
    }
    return reply;
  }

  async exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply> {
    const { clock } = this.#options;
    // Calls do not wait for what can be answered here.
    if (this.#contact.isLost && this.#canLend) {
      if (this.#contact.mayTry(clock.monotonicMs()) && !this.#beating) void this.#beat();
      return this.#lendHere(asks);
    }
    const sentMs = clock.monotonicMs();
    try {
      const reply = await this.#inTurn(async () => {
        await this.#tellUnreported();
        return this.#options.coordinator.exchange(asks.map(withoutOwnTicks));
      });
      this.#answered(sentMs);
      for (const [at, ask] of asks.entries()) this.#standBy?.served(ask, reply.answers[at]!);
      return reply;
    } catch (error) {
      if (!(error instanceof CoordinatorLost) || error.reason === 'unknown_node' || error.reason === 'closed')
        throw error;
      this.#contact.failed(error, clock.monotonicMs());
      if (!this.#canLend) {
        this.#setAlone(undefined);
        throw error;
      }
      return this.#lendHere(asks);
    }
  }

  look(scopes: readonly string[]): Promise<ScopeView[]> {
    return this.#options.coordinator.look(scopes);
  }

  async leave(): Promise<void> {
    // One that waits for its turn would join again.
    this.#stopHeartbeat?.();
    this.#left = true;
    await this.#inTurn(() => this.#tellUnreported());
    await this.#standBy?.leave();
    await this.#inTurn(() => this.#options.coordinator.leave());
  }

  async close(): Promise<void> {
    this.#left = true;
    this.#stopHeartbeat?.();
    await this.#standBy?.close();
    await this.#options.coordinator.close();
  }

  /** Whether the server, if it still serves others, holds a share of each minute back for this node. */
  get #hasShare(): boolean {
    const { shares, nodeExpiryMs } = this.#options;
    const { silentMs } = this;
    return shares > 0 && silentMs >= SHARE_BEGINS_MS && silentMs <= nodeExpiryMs;
  }

  get #canLend(): boolean {
    return this.#hasShare || this.#standBy?.holdsAny === true;
  }

  #setAlone(reason: string | undefined): void {
    const isAlone = reason !== undefined;
    if (isAlone === this.#alone) return;
    this.#alone = isAlone;
    this.#options.onAlone?.(reason);
  }

  async #lendHere(asks: readonly LeaseAsk[]): Promise<ExchangeReply> {
    this.#setAlone(this.#contact.state.lost?.message);
    const own = this.#hasShare
      ? (await this.#own.exchange(asks.map((ask) => this.#ofOwn(ask)))).answers
      : undefined;
    const replies = asks.map((ask, at) => {
      const reply = loneReply(ask, own?.[at], this.#standBy?.lend(ask));
      this.#unreported.note(ask, reply);
      return reply;
    });
    return { wallMs: this.#options.clock.wallMs(), answers: replies, isAlone: true };
  }

  /** Before anything else is asked of the coordinator: what the node holds now, and was granted without it. */
  async #tellUnreported(): Promise<void> {
    while (this.#unreported.size > 0) {
      const page = this.#unreported.page();
      await this.#options.coordinator.exchange(page);
      this.#unreported.told(page);
    }
  }

  #keepBeating(): void {
    if (this.#left) return;
    this.#stopHeartbeat = (this.#options.timers ?? SYSTEM_TIMERS).after(HEARTBEAT_MS, () => {
      if (!this.#beating) void this.#beat();
      this.#keepBeating();
    });
  }

  /** A server that knows nothing is told all at once, and not when a request comes: others wait for it. */
  async #beat(): Promise<void> {
    const { coordinator: authority, clock } = this.#options;
    this.#beating = true;
    const sentMs = clock.monotonicMs();
    try {
      await this.#inTurn(async () => {
        if (this.#left) return;
        try {
          if (this.#unreported.size > 0) await this.#tellUnreported();
          else await authority.exchange([]);
        } catch (error) {
          if (!(error instanceof CoordinatorLost) || error.reason !== 'unknown_node') throw error;
          await authority.join();
        }
      });
      this.#answered(sentMs);
    } catch (error) {
      // What fails is seen by the next exchange that is asked for.
      if (!(error instanceof CoordinatorLost)) throw error;
      this.#contact.failed(error, clock.monotonicMs());
    } finally {
      this.#beating = false;
    }
  }

  #answered(sentMs: number): void {
    this.#contact.answered(sentMs, this.#options.clock.monotonicMs());
    this.#setAlone(undefined);
  }

  /** One call at a time reaches the coordinator, as it wants; notes when the server may have heard it. */
  #inTurn<Result>(call: () => Promise<Result>): Promise<Result> {
    const made = this.#last.then(async () => {
      try {
        const result = await call();
        this.#heardMs = this.#options.clock.monotonicMs();
        return result;
      } catch (error) {
        // Before the first response there is nothing to be silent after.
        if (this.#heardMs !== Infinity && !wasNotSent(error))
          this.#heardMs = this.#options.clock.monotonicMs();
        throw error;
      }
    });
    this.#last = made.catch(() => undefined);
    return made;
  }

  #ofOwn({ scope: subject, limits, minute }: LeaseAsk): LeaseAsk {
    const requestsPerMinute = Math.floor(limits.requestsPerMinute / this.#options.shares);
    const returned = (minute?.returned ?? [])
      .filter(({ tick }) => tick < 0)
      .map(({ tick, count }) => ({ tick: -1 - tick, count }));
    return {
      scope: subject,
      limits: { ...limits, requestsPerMinute },
      ...(minute === undefined ? {} : { minute: { ...minute, returned } }),
    };
  }
}
