/**
 * Nodes that share limits over one coordinator, in one process and by one clock that jumps from event to
 * event: ledgers and keepers are the real ones, the network between them is played, with delays, losses and
 * duplicates. Deterministic by its seed.
 */
import {
  asAccountIndex,
  asCallSlot,
  asGroupIndex,
  asPicoUnits,
  type AccountIndex,
  type PicoUnits,
  type WallMs,
} from '#src/core/units.js';
import { type LeaseNeed, type LeaseScope, refusedBy } from '#src/channel/lease-channel.js';
import { Calendar } from '#src/core/calendar.js';
import { NO_QUOTAS, type QuotaLimits } from '#src/core/quotas.js';
import type { Clock } from '#src/core/clock.js';
import { CoordinatorClock } from '#src/ledger/coordinator-clock.js';
import { createLedgerBuffers } from '#src/ledger/layout.js';
import { Ledger } from '#src/ledger/ledger.js';
import { Leases } from '#src/ledger/leases.js';
import {
  CoordinatorLost,
  type Coordinator,
  type ExchangeReply,
  type LeaseAsk,
  type NodeIdentity,
} from '#src/sharing/coordinator.js';
import { LEASE_TRIES_MIN, LEASE_TRIES_MS_MAX } from '#src/request/rate-limit.js';
import { LeaseManager } from '#src/sharing/lease-manager.js';
import type { MemoryCoordinator } from './memory-coordinator.js';
import { ManualClock } from '../fixtures/manual-clock.js';

interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly act: () => void;
}

/** A heap of what happens when, and the clock that goes from one to the next. */
export class EventTime {
  readonly clock = new ManualClock();
  readonly #heap: Event[] = [];
  #order = 0;

  get nowMs(): number {
    return this.clock.monotonicMs();
  }

  after(ms: number, act: () => void): () => void {
    let called = false;
    const event: Event = {
      atMs: this.nowMs + ms,
      order: (this.#order += 1),
      act: () => {
        if (!called) act();
      },
    };
    this.#push(event);
    return () => (called = true);
  }

  /** Lets everything happen that is due in the next `ms`. */
  async run(ms: number): Promise<void> {
    const endMs = this.nowMs + ms;
    for (;;) {
      const next = this.#heap[0];
      if (next === undefined || next.atMs > endMs) break;
      this.#pop();
      this.clock.advance(Math.max(0, next.atMs - this.nowMs));
      next.act();
      // What was awaiting goes on before the next event.
      await new Promise(setImmediate);
    }
    this.clock.advance(endMs - this.nowMs);
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.push(event) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(heap[at]!, heap[parent]!)) break;
      [heap[at], heap[parent]] = [heap[parent]!, heap[at]!];
      at = parent;
    }
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    heap[0] = last;
    for (let at = 0; ;) {
      const left = at * 2 + 1;
      let least = at;
      if (left < heap.length && isBefore(heap[left]!, heap[least]!)) least = left;
      if (left + 1 < heap.length && isBefore(heap[left + 1]!, heap[least]!)) least = left + 1;
      if (least === at) return;
      [heap[at], heap[least]] = [heap[least]!, heap[at]!];
      at = least;
    }
  }
}

function isBefore(one: Event, other: Event): boolean {
  return one.atMs < other.atMs || (one.atMs === other.atMs && one.order < other.order);
}

/** Of one way; each message is lost, or comes twice and the second time late, with these chances. */
export interface Network {
  readonly delayMs: number;
  readonly lost: number;
  readonly doubled: number;
}

export const GOOD_NETWORK: Network = { delayMs: 0.3, lost: 0, doubled: 0 };
const DEADLINE_MS = 1_000;

/** A node's way to the coordinator. */
export class PlayedAuthority implements Coordinator {
  readonly #time: EventTime;
  readonly #shared: MemoryCoordinator;
  readonly #node: NodeIdentity;
  readonly #random: () => number;
  network: Network;
  exchanges = 0;
  asks = 0;
  #sequence = 0;

  constructor(
    time: EventTime,
    shared: MemoryCoordinator,
    node: NodeIdentity,
    random: () => number,
    network: Network,
  ) {
    this.#time = time;
    this.#shared = shared;
    this.#node = node;
    this.#random = random;
    this.network = network;
  }

  join(): Promise<WallMs> {
    return this.#carry(() => this.#shared.join(this.#node));
  }

  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeReply> {
    this.exchanges += 1;
    this.asks += asks.length;
    const sequence = (this.#sequence += 1);
    return this.#carry(() => this.#shared.exchange(this.#node, sequence, asks));
  }

  view(): Promise<never> {
    return Promise.reject(new CoordinatorLost('closed', 'nobody looks here'));
  }

  leave(): Promise<void> {
    return this.#carry(() => this.#shared.leave(this.#node));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #carry<Result>(act: () => Result): Promise<Result> {
    return new Promise((resolve, reject) => {
      const { delayMs, lost, doubled } = this.network;
      const delay = (): number => delayMs * (0.5 + this.#random());
      const arrive = (answers: boolean) => (): void => {
        try {
          const result = act();
          if (answers && this.#random() >= lost) this.#time.after(delay(), () => resolve(result));
        } catch (error) {
          const refusal =
            error instanceof CoordinatorLost ? error : new CoordinatorLost('failing', String(error));
          if (answers) this.#time.after(delay(), () => reject(refusal));
        }
      };
      if (this.#random() >= lost) this.#time.after(delay(), arrive(true));
      if (this.#random() < doubled) this.#time.after(delay() + 3_000 * this.#random(), arrive(false));
      this.#time.after(DEADLINE_MS, () => reject(new CoordinatorLost('deadline', 'no answer')));
    });
  }
}

/** 0 is no limit. */
export interface WorldLimits {
  readonly requestsPerMinute: number;
  readonly callsPerDay: number;
  readonly callsInFlight: number;
}

/** Where a node counts its subjects: by an index of its own, so that its buffers are as small as its work. */
export interface NodeSubjects {
  readonly accountsMax: number;
  readonly subjectOf: (account: AccountIndex) => string;
  readonly limitsOf: (account: AccountIndex) => WorldLimits;
  /** Of each account, besides `limitsOf`. */
  readonly quotas?: QuotaLimits;
  /** As of LeaseManager. */
  readonly silentMsMax?: number;
  /** By index. All accounts are in the last one. */
  readonly groups?: readonly WorldGroup[];
}

export interface WorldGroup {
  readonly id: string;
  readonly parent?: number;
  readonly limits: Partial<QuotaLimits>;
}

export type CallEnd = 'served' | 'minute' | 'admission' | 'lost';

export class LeaseNode {
  readonly keeper: LeaseManager;
  readonly ledger: Ledger;
  readonly authority: PlayedAuthority;
  readonly #time: EventTime;
  readonly #subjects: NodeSubjects;
  readonly #shared: MemoryCoordinator;
  readonly #charged: BigInt64Array;
  readonly #flushed: BigInt64Array;
  readonly #freeSlots: number[];
  dead = false;

  constructor(
    time: EventTime,
    shared: MemoryCoordinator,
    node: NodeIdentity,
    subjects: NodeSubjects,
    random: () => number,
    network = GOOD_NETWORK,
    callsMax = 1_000,
    wrap: (authority: Coordinator) => Coordinator = (authority) => authority,
    clock: Clock = time.clock,
  ) {
    const { accountsMax, groups = [] } = subjects;
    const groupsMax = groups.length;
    const buffers = createLedgerBuffers({ accountsMax, groupsMax, callsInFlightMax: callsMax, shared: true });
    const calendar = new CoordinatorClock(clock, buffers.coordinatorAheadMs!);
    const leases = new Leases(buffers, clock);
    this.#time = time;
    this.#shared = shared;
    this.#subjects = subjects;
    this.#charged = new BigInt64Array(accountsMax);
    this.#flushed = new BigInt64Array(accountsMax);
    this.#freeSlots = Array.from({ length: callsMax }, (_, slot) => slot);
    this.authority = new PlayedAuthority(time, shared, node, random, network);
    this.keeper = new LeaseManager({
      coordinator: wrap(this.authority),
      clock,
      timers: {
        soon: (act) => {
          time.after(0, () => this.#unlessDead(act));
        },
        after: (ms, act) => time.after(ms, () => this.#unlessDead(act)),
      },
      random,
      calendar: new Calendar(),
      silentMsMax: subjects.silentMsMax,
      addressOf: ({ kind, index }) => {
        const group = asGroupIndex(index);
        if (kind === 'group')
          return {
            ...{ kind, index, scopeId: groups[index]!.id, minute: leases.groups },
            wordsOf: (name) => leases.stockOf({ kind, index: group }, name),
            limits: () => groups[index]!.limits,
          };
        const account = asAccountIndex(index);
        return {
          kind: 'account',
          index,
          scopeId: subjects.subjectOf(account),
          minute: leases.accounts,
          wordsOf: (name) => leases.stockOf({ kind: 'account', index: account }, name),
          money: leases.balanceOf(account, {
            flushedOf: (of) => asPicoUnits(this.#flushed[of]!),
            collect: (of, most) => {
              const taken = this.ledger.collect(of, most);
              this.#charged[of] = this.#charged[of]! + taken;
              return taken;
            },
          }),

          limits: () => {
            const { requestsPerMinute, callsPerDay, callsInFlight } = subjects.limitsOf(account);
            return { ...subjects.quotas, requestsPerMinute, callsPerDay, callsInFlight };
          },
        };
      },
      groupsOf: () => {
        const chain: number[] = [];
        for (
          let at: number | undefined = groups.length - 1;
          at !== undefined && at >= 0;
          at = groups[at]!.parent
        )
          chain.push(at);
        return chain;
      },
      onCalendar: (wallMs, hostWallMs) => calendar.setDifference(wallMs, hostWallMs),
      onContact: () => undefined,
    });
    const low: LeaseScope[] = [];
    const onLow = (kind: LeaseScope['kind'], index: number): void => {
      if (low.push({ kind, index }) > 1) return;
      time.after(0, () => {
        if (!this.dead) this.keeper.askForMore(low.splice(0));
      });
    };
    this.ledger = new Ledger(buffers, calendar, onLow);
    for (const [index, { limits, parent }] of groups.entries()) {
      const above = parent === undefined ? undefined : asGroupIndex(parent);
      this.ledger.groups.open(asGroupIndex(index), limits, { parent: above });
    }
    for (let account = 0; groups.length > 0 && account < accountsMax; account++)
      this.ledger.setGroup(asAccountIndex(account), asGroupIndex(groups.length - 1));
  }

  /** One request, as a listener handles it. `onMinute` is told the moment it has its permit of the minute. */
  async call(
    account: AccountIndex,
    hold: PicoUnits,
    onMinute: () => void = () => undefined,
    tokens = 0,
  ): Promise<{ readonly end: CallEnd; readonly slot?: number }> {
    const { limitsOf, quotas, groups = [] } = this.#subjects;
    const { requestsPerMinute, callsPerDay, callsInFlight } = limitsOf(account);
    const minute = await this.#try(account, { kind: 'minute' }, () => {
      for (const [index, { limits }] of groups.entries()) {
        if (limits.requestsPerMinute === undefined) continue;
        const take = this.ledger.groups.minute.take(asGroupIndex(index), limits.requestsPerMinute);
        if (!take.admitted) return !take.mayAskForMore && 'final';
      }
      if (requestsPerMinute === 0) return true;
      const take = this.ledger.minute.take(account, requestsPerMinute);
      return take.admitted || (!take.mayAskForMore && 'final');
    });
    if (minute !== 'try') return { end: minute === 'lost' ? 'lost' : 'minute' };
    onMinute();
    const slot = this.#freeSlots.pop();
    if (slot === undefined) throw new Error('the world has too few slots');
    const plan = { callsPerDay, callsInFlightMax: callsInFlight, quotas: quotas ?? NO_QUOTAS };
    const admission = await this.#try(
      account,
      { kind: 'admission', hold, tokens },
      () =>
        this.ledger.admit(asCallSlot(slot), { account, plan, key: undefined }, { hold, tokens }) ===
        undefined,
    );
    if (admission === 'try') return { end: 'served', slot };
    this.#freeSlots.push(slot);
    return { end: admission === 'lost' ? 'lost' : 'admission' };
  }

  /** The call in the slot has ended; `cost` undefined: it failed. Returns what was charged. */
  endCall(account: AccountIndex, slot: number, cost: PicoUnits | undefined, tokens = 0): bigint {
    this.#freeSlots.push(slot);
    if (cost === undefined) {
      this.ledger.release(asCallSlot(slot));
      return 0n;
    }
    const charged = this.ledger.settle(asCallSlot(slot), cost, tokens)!.charged;
    this.#charged[account] = this.#charged[account]! + charged;
    return charged;
  }

  /** Writes all charges to the store: the coordinator sees them as spent. */
  flush(): void {
    for (let account = 0; account < this.#charged.length; account++) {
      const amount = this.#charged[account]! - this.#flushed[account]!;
      if (amount === 0n) continue;
      this.#shared.addSpent(this.#subjects.subjectOf(asAccountIndex(account)), asPicoUnits(amount));
      this.#flushed[account] = this.#charged[account]!;
    }
  }

  #unlessDead(act: () => void): void {
    if (!this.dead) act();
  }

  async #try(
    account: AccountIndex,
    need: LeaseNeed,
    take: () => boolean | 'final',
  ): Promise<'try' | 'refused' | 'lost'> {
    const sinceMs = this.#time.nowMs;
    let taken = take();
    for (let tries = 0; taken !== true; tries++) {
      if (taken === 'final') return 'refused';
      if (tries >= LEASE_TRIES_MIN && this.#time.nowMs - sinceMs >= LEASE_TRIES_MS_MAX) return 'lost';
      const end = await this.keeper.wait([{ kind: 'account', index: account }], need);
      taken = take();
      if (end !== 'try' && taken !== true) return refusedBy(end) === undefined ? 'lost' : 'refused';
    }
    return 'try';
  }
}
