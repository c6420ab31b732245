/**
 * The reference coordinator: plain objects in one process. `LmdbCoordinator` and `ValkeyCoordinator` must do
 * what it does. Tests and the simulation use it, and `EqualShare` grants permits from it while the process is
 * cut off. Main thread.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import {
  CoordinatorLost,
  EXCHANGE_ASKS_MAX,
  type Coordinator,
  type ExchangeReply,
  type JoinReply,
  type LeaseAsk,
  type NodeIdentity,
  placeOf,
  type ScopeView,
  unknownNode,
} from './coordinator.js';
import { ScopeGrants } from './scope-grants.js';

interface KnownNode {
  incarnation: string;
  sequence: number;
}

/** What all nodes share; `connect` makes a node's end. */
export class MemoryCoordinator {
  readonly #clock: Clock;
  readonly #scopes = new Map<string, ScopeGrants>();
  /** By place: the life that is known. */
  readonly #nodes = new Map<string, KnownNode>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  connect(node: NodeIdentity): Coordinator {
    let sequence = 0;
    let closed = false;
    const later = async <Result>(act: () => Result): Promise<Result> => {
      await Promise.resolve();
      if (closed) throw new CoordinatorLost('closed', 'the authority was closed');
      return act();
    };
    return {
      join: () => later(() => this.join(node)),
      exchange: (asks) => {
        const number = (sequence += 1);
        return later(() => this.exchange(node, number, asks));
      },
      look: (scopes) => later(() => this.look(scopes)),
      leave: () => later(() => this.leave(node)),
      close: () => {
        closed = true;
        return Promise.resolve();
      },
    };
  }

  /** Sets how much was ever credited to an account, as a registry would. */
  setCredited(scope: string, credited: PicoUnits): void {
    this.#scopeOf(scope).credited = credited;
  }

  /** Adds to what the store has as spent, as a flush would: before the ask whose `outstanding` lacks it. */
  addSpent(scope: string, amount: PicoUnits): void {
    const known = this.#scopeOf(scope);
    known.spent = asPicoUnits(known.spent + amount);
  }

  /** Ends an earlier life of the node. Does nothing if this life has joined: a message may come twice. */
  join(node: NodeIdentity): JoinReply {
    const place = placeOf(node);
    if (this.#nodes.get(place)?.incarnation !== node.incarnation) {
      this.#forget(node);
      this.#nodes.set(place, { incarnation: node.incarnation, sequence: 0 });
    }
    return { wallMs: this.#clock.wallMs() };
  }

  /** Throws CoordinatorLost, and does nothing, unless `sequence` is above the node's last. */
  exchange(node: NodeIdentity, sequence: number, asks: readonly LeaseAsk[]): ExchangeReply {
    const known = this.#nodes.get(placeOf(node));
    if (known?.incarnation !== node.incarnation) throw unknownNode();
    if (sequence <= known.sequence) throw new CoordinatorLost('failing', 'a newer exchange was seen');
    known.sequence = sequence;
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    const nowMs = this.#clock.monotonicMs();
    const wallMs = this.#clock.wallMs();
    const place = placeOf(node);
    return {
      wallMs,
      answers: asks.map((ask) => this.#scopeOf(ask.scope).reply(place, node.host, ask, nowMs)),
    };
  }

  look(scopes: readonly string[]): ScopeView[] {
    const nowMs = this.#clock.monotonicMs();
    return scopes.map((scope) => this.#scopeOf(scope).view(scope, nowMs));
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
    let known = this.#scopes.get(scope);
    if (known === undefined) {
      known = new ScopeGrants();
      this.#scopes.set(scope, known);
    }
    return known;
  }
}
