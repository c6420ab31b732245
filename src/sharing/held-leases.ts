/**
 * The most that a node can hold of day, slots and money. `ValkeyCoordinator` records each ask and reply here,
 * so that a server that has lost its data can be told. Between two asks the node can only hold less. Main
 * thread.
 *
 * An entry takes some 200 bytes and lasts while something is held, so accounts and keys bound the entries.
 */
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { LeaseReply, LeaseAsk } from './coordinator.js';

export interface HeldDay {
  readonly dayNumber: number;
  readonly used: number;
  readonly unused: number;
  /** What all nodes together had used and held of the day when the coordinator last said so. */
  readonly seen: number;
}

export interface HeldLease {
  readonly day: HeldDay | undefined;
  readonly slots: number;
  readonly money: PicoUnits;
}

const NOTHING: HeldLease = { day: undefined, slots: 0, money: asPicoUnits(0n) };

export class HeldLeases {
  readonly #held = new Map<string, HeldLease>();
  /** The newest day; what was held of older days is dropped when it changes. */
  #dayNumber = 0;

  /** How many scopes something is held of. */
  get size(): number {
    return this.#held.size;
  }

  of(scope: string): HeldLease {
    return this.#held.get(scope) ?? NOTHING;
  }

  /** Takes in an ask and its reply. `reply` is undefined if none came: then the node can use no grant. */
  record(ask: LeaseAsk, reply: LeaseReply | undefined): void {
    const before = this.of(ask.scope);
    const money =
      ask.money === undefined
        ? before.money
        : asPicoUnits(ask.money.outstanding + (reply?.money?.granted ?? 0n));
    const slots =
      ask.slots === undefined ? before.slots : ask.slots.outstanding + (reply?.slots?.granted ?? 0);
    const day = ask.day === undefined ? before.day : dayOf(ask, reply, before.day);
    if (day !== undefined && day.dayNumber > this.#dayNumber) this.#turnTo(day.dayNumber);
    const today = day?.dayNumber === this.#dayNumber ? day : undefined;
    if (money === 0n && slots === 0 && today === undefined) this.#held.delete(ask.scope);
    else this.#held.set(ask.scope, { day: today, slots, money });
  }

  entries(): IterableIterator<[string, HeldLease]> {
    return this.#held.entries();
  }

  #turnTo(dayNumber: number): void {
    this.#dayNumber = dayNumber;
    for (const [scope, held] of this.#held) {
      if (held.money === 0n && held.slots === 0) this.#held.delete(scope);
      else this.#held.set(scope, { ...held, day: undefined });
    }
  }
}

function dayOf(
  { day: asked, limits }: LeaseAsk,
  reply: LeaseReply | undefined,
  before: HeldDay | undefined,
): HeldDay | undefined {
  const said = reply?.day;
  if (asked === undefined) return undefined;
  if (said === undefined) {
    const { dayNumber, used, unused } = asked;
    const seen = before?.dayNumber === dayNumber ? before.seen : 0;
    return dayNumber === 0 ? before : { dayNumber, used, unused, seen };
  }
  const same = asked.dayNumber === said.dayNumber;
  return {
    dayNumber: said.dayNumber,
    used: same ? asked.used : 0,
    unused: (same ? asked.unused : 0) + said.granted,
    seen: Math.max(0, limits.callsPerDay - said.remaining),
  };
}
