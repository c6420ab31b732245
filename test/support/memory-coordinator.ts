/**
 * The reference coordinator: plain objects in one process. `LmdbCoordinator` and `ValkeyCoordinator` must do
 * what it does. Tests and the simulation use it.
 */
import type { Clock } from '#src/core/clock.js';
import { invariant } from '#src/core/errors.js';
import { Calendar } from '#src/core/calendar.js';
import { asPicoUnits, type PicoUnits, type WallMs } from '#src/core/units.js';
import {
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type Coordinator,
  type ExchangeReply,
  type GrantedPermits,
  type VersionedTotal,
  type LeaseAsk,
  type NodeIdentity,
  periodAt,
  type PeriodOf,
  placeOf,
  type ScopeView,
  unknownNode,
} from '#src/sharing/coordinator.js';
import { type AccountMoney, NO_MONEY, ScopeGrants } from '#src/sharing/scope-grants.js';

interface JoinedNode {
  incarnation: string;
  sequence: number;
  /** By scope: the last grant of permits, whose reply may be lost. */
  readonly lastGrants: Map<string, GrantedPermits & { readonly number: number }>;
}

/** What all nodes share; `connect` makes a node's end. */
export class MemoryCoordinator {
  readonly #clock: Clock;
  readonly #calendar = new Calendar();
  readonly #scopes = new Map<string, ScopeGrants>();
  readonly #money = new Map<string, AccountMoney>();
  /** By scope and host: what the host has reported as spent. */
  readonly #spent = new Map<string, VersionedTotal>();
  /** By place: the node that has joined, and the number of its last exchange. */
  readonly #nodes = new Map<string, JoinedNode>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  connect(node: NodeIdentity): Coordinator {
    let sequence = 0;
    let closed = false;
    /** Replies come in a later microtask, as over a network; those that come after `close` fail. */
    const later = async <Result>(act: () => Result): Promise<Result> => {
      await Promise.resolve();
      if (closed) throw new CoordinatorLost('closed', 'the coordinator was closed');
      return act();
    };
    return {
      join: () => later(() => this.join(node)),
      exchange: (asks) => {
        const number = (sequence += 1);
        return later(() => this.exchange(node, number, asks));
      },
      view: (scopes, slots) => later(() => this.view(scopes, slots, node.host)),
      leave: () => later(() => this.leave(node)),
      close: () => {
        closed = true;
        return Promise.resolve();
      },
    };
  }

  /** Sets how much was ever credited to an account, as a registry would. */
  setCredited(scope: string, credited: PicoUnits): void {
    this.#setMoney(scope, { credited });
  }

  /**
   * Adds to what the account has spent, as a flush would. Tests call it before the exchange that no longer
   * reports the amount as outstanding: else the coordinator takes it for free, and grants it twice.
   */
  addSpent(scope: string, amount: PicoUnits): void {
    const { spent } = this.#money.get(scope) ?? NO_MONEY;
    this.#setMoney(scope, { spent: asPicoUnits(spent + amount) });
  }

  #setMoney(scope: string, changed: Partial<AccountMoney>): void {
    const money = { ...(this.#money.get(scope) ?? NO_MONEY), ...changed };
    this.#money.set(scope, money);
  }

  /** As `addSpent`, of a host's whole sum: of its reports the one with the newest version counts. */
  reportSpent(host: string, scope: string, spent: VersionedTotal): void {
    const name = `${scope} ${host}`;
    const before = this.#spent.get(name) ?? { totalPicoUnits: asPicoUnits(0n), version: -1 };
    if (spent.version <= before.version) return;
    this.#spent.set(name, spent);
    this.addSpent(scope, asPicoUnits(spent.totalPicoUnits - before.totalPicoUnits));
  }

  /** Ends an earlier life of the node. Does nothing if this life has joined: a message may come twice. */
  join(node: NodeIdentity): WallMs {
    const place = placeOf(node);
    if (this.#nodes.get(place)?.incarnation !== node.incarnation) {
      this.#forget(node);
      this.#nodes.set(place, { incarnation: node.incarnation, sequence: 0, lastGrants: new Map() });
    }
    return this.#clock.wallMs();
  }

  /** Throws CoordinatorLost, and does nothing, unless `sequence` is above the node's last. */
  exchange(node: NodeIdentity, sequence: number, asks: readonly LeaseAsk[]): ExchangeReply {
    const joined = this.#nodes.get(placeOf(node));
    if (joined?.incarnation !== node.incarnation) throw unknownNode();
    if (sequence <= joined.sequence) throw new CoordinatorLost('failing', 'a newer exchange was seen');
    joined.sequence = sequence;
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    const nowMs = this.#clock.monotonicMs();
    const wallMs = this.#clock.wallMs();
    const place = placeOf(node);
    return {
      wallMs,
      replies: asks.map((ask) => {
        const periodOf: PeriodOf = (name) => periodAt(name, this.#calendar, wallMs);
        const reply = this.#scopeOf(ask.scope).reply(place, asHeard(ask, joined), nowMs, periodOf);
        const { order } = ask.minute ?? {};
        if (order !== undefined) {
          const { tick, granted: count } = reply.minute!;
          joined.lastGrants.set(ask.scope, { number: order.number, tick, count });
        }
        return reply;
      }),
    };
  }

  /** What is granted and free of each scope, for operators; `slots` of `host` are told apart. */
  view(scopes: readonly string[], slots: readonly number[] = [], host = ''): ScopeView[] {
    const nowMs = this.#clock.monotonicMs();
    const processes = slots.map((slot) => [slot, placeOf({ host, slot })] as const);
    return scopes.map((scope) => this.#scopeOf(scope).view(scope, processes, nowMs));
  }

  leave(node: NodeIdentity): void {
    if (this.#nodes.get(placeOf(node))?.incarnation !== node.incarnation) throw unknownNode();
    this.#forget(node);
  }

  #forget(node: NodeIdentity): void {
    const place = placeOf(node);
    if (!this.#nodes.delete(place)) return;
    const nowMs = this.#clock.monotonicMs();
    for (const scope of this.#scopes.values()) scope.forget(place, nowMs);
  }

  #scopeOf(scope: string): ScopeGrants {
    let grants = this.#scopes.get(scope);
    if (grants === undefined) {
      grants = new ScopeGrants(() => this.#money.get(scope) ?? NO_MONEY);
      this.#scopes.set(scope, grants);
    }
    return grants;
  }
}

/**
 * The ask of a node that has not heard of its last grant: it returns that grant. What it returns and names as
 * used is recorded already, as it repeats the ask whose reply was lost.
 */
function asHeard(ask: LeaseAsk, { lastGrants }: JoinedNode): LeaseAsk {
  const { minute, scope } = ask;
  const last = lastGrants.get(scope);
  if (last === undefined || minute?.order === undefined || last.number <= minute.order.heardNumber)
    return ask;
  return { ...ask, minute: { ...minute, returned: [last], used: [] } };
}
