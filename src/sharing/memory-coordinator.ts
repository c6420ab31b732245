/**
 * The reference authority: plain objects in one process, by a clock that is given. For tests and the simulation; LmdbAuthority
 * and ValkeyAuthority must do what it does. Main thread.
 */
import type { Clock } from '../core/clock.js';
import { invariant } from '../core/errors.js';
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import {
  AuthorityLost,
  EXCHANGE_ASKS_MAX,
  type Authority,
  type ExchangeAnswer,
  type JoinAnswer,
  type LeaseAsk,
  type NodeIdentity,
  type SubjectView,
} from './coordinator.js';
import { SubjectLeases } from './scope-grants.js';

interface KnownNode {
  incarnation: string;
  sequence: number;
}

/** What all nodes share. */
export class MemoryAuthority {
  readonly #clock: Clock;
  readonly #subjects = new Map<string, SubjectLeases>();
  /** By host and slot: the life that is known. */
  readonly #nodes = new Map<string, KnownNode>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A node's end of it. */
  connect(node: NodeIdentity): Authority {
    return new MemoryNode(this, node);
  }

  /** Sets the money that was ever put into an account, as a registry would. */
  setCredited(subject: string, credited: PicoUnits): void {
    this.#subjectOf(subject).credited = credited;
  }

  /** Adds to what a host's store has as spent, as a flush would: before the ask whose `outstanding` is without it. */
  addSpent(subject: string, amount: PicoUnits): void {
    const known = this.#subjectOf(subject);
    known.spent = asPicoUnits(known.spent + amount);
  }

  /** Ends the former life of the node, and does nothing for this one where it has joined before: a message may come twice. */
  join(node: NodeIdentity): JoinAnswer {
    const place = placeOf(node);
    if (this.#nodes.get(place)?.incarnation !== node.incarnation) {
      this.#forget(node);
      this.#nodes.set(place, { incarnation: node.incarnation, sequence: 0 });
    }
    return { wallMs: this.#clock.wallMs() };
  }

  /** Does nothing, and throws, where `sequence` is not above the last of this node. */
  exchange(node: NodeIdentity, sequence: number, asks: readonly LeaseAsk[]): ExchangeAnswer {
    const known = this.#nodes.get(placeOf(node));
    if (known?.incarnation !== node.incarnation) throw unknownNode();
    if (sequence <= known.sequence) throw new AuthorityLost('failing', 'a newer exchange was seen');
    known.sequence = sequence;
    invariant(asks.length <= EXCHANGE_ASKS_MAX, 'an exchange is within its bound');
    const nowMs = this.#clock.monotonicMs();
    const wallMs = this.#clock.wallMs();
    const place = placeOf(node);
    return {
      wallMs,
      answers: asks.map((ask) => this.#subjectOf(ask.subject).answer(place, node.host, ask, nowMs, wallMs)),
    };
  }

  look(subjects: readonly string[]): SubjectView[] {
    const nowMs = this.#clock.monotonicMs();
    return subjects.map((subject) => this.#subjectOf(subject).view(subject, nowMs));
  }

  leave(node: NodeIdentity): void {
    if (this.#nodes.get(placeOf(node))?.incarnation !== node.incarnation) throw unknownNode();
    this.#forget(node);
  }

  #forget(node: NodeIdentity): void {
    const place = placeOf(node);
    if (!this.#nodes.delete(place)) return;
    for (const subject of this.#subjects.values()) subject.forget(place);
  }

  #subjectOf(subject: string): SubjectLeases {
    let known = this.#subjects.get(subject);
    if (known === undefined) {
      known = new SubjectLeases();
      this.#subjects.set(subject, known);
    }
    return known;
  }
}

class MemoryNode implements Authority {
  readonly #shared: MemoryAuthority;
  readonly #node: NodeIdentity;
  #sequence = 0;
  #closed = false;

  constructor(shared: MemoryAuthority, node: NodeIdentity) {
    this.#shared = shared;
    this.#node = node;
  }

  join(): Promise<JoinAnswer> {
    return this.#later(() => this.#shared.join(this.#node));
  }

  exchange(asks: readonly LeaseAsk[]): Promise<ExchangeAnswer> {
    this.#sequence += 1;
    return this.#later(() => this.#shared.exchange(this.#node, this.#sequence, asks));
  }

  look(subjects: readonly string[]): Promise<SubjectView[]> {
    return this.#later(() => this.#shared.look(subjects));
  }

  leave(): Promise<void> {
    return this.#later(() => this.#shared.leave(this.#node));
  }

  close(): Promise<void> {
    this.#closed = true;
    return Promise.resolve();
  }

  async #later<Result>(act: () => Result): Promise<Result> {
    await Promise.resolve();
    if (this.#closed) throw new AuthorityLost('closed', 'the authority was closed');
    return act();
  }
}

function placeOf({ host, slot }: NodeIdentity): string {
  return `${host}:${slot}`;
}

function unknownNode(): AuthorityLost {
  return new AuthorityLost('unknown_node', 'this life of the node is not known');
}
