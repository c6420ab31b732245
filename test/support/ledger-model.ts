/**
 * A ledger that is obviously right: plain objects, one thread, nothing shared. What is available is not kept
 * but is what was credited and is neither spent nor held; a minute is a list of permits with the tick of
 * each. Beside it what the model test and its workers say to each other: operations as data, how they are
 * performed on the real ledger, and the shared words.
 */
import type { Clock } from '#src/core/clock.js';
import {
  asMonotonicMs,
  asWallMs,
  type AccountIndex,
  type CallSlot,
  type MonotonicMs,
  type PicoUnits,
  type WallMs,
} from '#src/core/units.js';
import { resetOfDay } from '#src/ledger/day.js';
import type { LedgerBuffers } from '#src/ledger/layout.js';
import type { AccountState, Ledger } from '#src/ledger/ledger.js';
import { admitTo, takenOfDay } from '../fixtures/ledger-world.js';

/**
 * Times are in 32nds of a millisecond, in which a tick (1/32 ms more than a 50th of a minute) is a whole
 * number.
 */
export const TICK_32NDS = (60_000 / 50) * 32 + 1;
/** A permit weighs in its own tick and the 50 after it. */
export const SPAN_TICKS = 51;
export const DAY_32NDS = 86_400_000 * 32;
const ZONE_32NDS = DAY_32NDS / 3;
/** No account's credit, and no recorded shortfall, passes this. */
const MONEY_MAX = 9_000_000n * 10n ** 12n;

export type Operation =
  | { kind: 'open'; account: AccountIndex; state: AccountState; used: number; ageMs: number }
  | { kind: 'take'; account: AccountIndex; limit: number }
  | { kind: 'admit'; account: AccountIndex; slot: CallSlot; callsPerDay: number; hold: PicoUnits }
  | { kind: 'settle'; slot: CallSlot; cost: PicoUnits }
  | { kind: 'release'; slot: CallSlot }
  | { kind: 'reverse'; account: AccountIndex; dayNumber: number; charged: PicoUnits; uncovered: PicoUnits }
  | { kind: 'releaseSlots'; first: CallSlot; count: number }
  | { kind: 'credit'; account: AccountIndex; amount: PicoUnits }
  | { kind: 'setPlan'; account: AccountIndex; planIndex: number }
  | { kind: 'setActive'; account: AccountIndex; active: boolean }
  | { kind: 'drain' }
  | { kind: 'time'; monotonic: number; wall: number };

/**
 * One operation of one thread; `actor` is the number of a worker, or the count of workers for the main
 * thread.
 */
export interface Step {
  readonly actor: number;
  readonly operation: Operation;
}

export interface ModelJob {
  readonly buffers: LedgerBuffers;
  readonly shared: SharedArrayBuffer;
  readonly actor: number;
  readonly accounts: number;
  readonly work:
    | { readonly kind: 'turns'; readonly steps: readonly Step[] }
    | {
        readonly kind: 'race';
        readonly seed: number;
        readonly rounds: number;
        readonly limits: readonly Limits[];
      };
}

/** Of one account. */
export interface Limits {
  readonly perMinute: number;
  readonly perDay: number;
}

/** What a racing thread did and was told; refusals only where they say something. */
export type Event =
  | { kind: 'take'; account: number; before: number; after: number; admitted: boolean }
  | { kind: 'admitted'; account: number; slot: number; dayNumber: number; hold: bigint }
  | { kind: 'settled'; slot: number; cost: bigint; charged: bigint; uncovered: bigint }
  | { kind: 'released'; slot: number }
  | { kind: 'lost'; slot: number }
  | { kind: 'reversed'; account: number; dayNumber: number; charged: bigint; uncovered: bigint };

/**
 * One thread's part of one round: on its own; then, with all the others, on the slots of the dead; then what
 * it sees.
 */
export interface RoundLog {
  readonly alone: Event[];
  readonly together: Event[];
  readonly seen: unknown;
}

export const SLOTS_PER_THREAD = 24;
/** Shared words of 32 bits: the step whose turn it is, threads that stand at the barrier, barriers passed. */
export const TURN = 0;
const ARRIVED = 1;
const PASSED = 2;
/** Shared words of 64 bits: the clocks, which the main thread moves. */
const MONOTONIC = 2;
const WALL = 3;
export const SHARED_BYTES = 32;

/** Who waits longer waits for a thread that has died. */
const WAIT_MS_MAX = 60_000;
/**
 * Looks before a thread sleeps at a barrier: those who come off it spinning start within the same
 * microsecond.
 */
const LOOKS = 50_000;

export class SharedClock implements Clock {
  readonly #words: BigInt64Array;
  readonly #afterLook: () => void;

  /** `afterLook`: what a thread does between a look at the clock and the use of what it saw. */
  constructor(shared: SharedArrayBuffer, afterLook: () => void = () => undefined) {
    this.#words = new BigInt64Array(shared);
    this.#afterLook = afterLook;
  }

  monotonicMs(): MonotonicMs {
    const ms = Number(Atomics.load(this.#words, MONOTONIC)) / 32;
    this.#afterLook();
    return asMonotonicMs(ms);
  }

  wallMs(): WallMs {
    const ms = Math.floor(Number(Atomics.load(this.#words, WALL)) / 32);
    this.#afterLook();
    return asWallMs(ms);
  }

  tick(): number {
    return Math.floor(Number(Atomics.load(this.#words, MONOTONIC)) / TICK_32NDS);
  }

  set(monotonic: number, wall: number): void {
    Atomics.store(this.#words, MONOTONIC, BigInt(monotonic));
    Atomics.store(this.#words, WALL, BigInt(wall));
  }
}

/** Waits until word `index` is no longer `value`. */
function waitWhile(words: Int32Array, index: number, value: number): void {
  if (Atomics.wait(words, index, value, WAIT_MS_MAX) === 'timed-out')
    throw new Error(`word ${index} is still ${value} after ${WAIT_MS_MAX} ms`);
}

/** Waits until all `threads` are here. */
export function meet(words: Int32Array, threads: number): void {
  const passed = Atomics.load(words, PASSED);
  if (Atomics.add(words, ARRIVED, 1) === threads - 1) {
    Atomics.store(words, ARRIVED, 0);
    Atomics.add(words, PASSED, 1);
    Atomics.notify(words, PASSED);
    return;
  }
  for (let look = 0; look < LOOKS; look++) if (Atomics.load(words, PASSED) !== passed) return;
  while (Atomics.load(words, PASSED) === passed) waitWhile(words, PASSED, passed);
}

/**
 * Performs the steps of `job.actor`, each when it is its turn; returns for each what came of it and all that
 * then is seen.
 */
export function takeTurns(job: ModelJob, ledger: Ledger, steps: readonly Step[]): unknown[] {
  const words = new Int32Array(job.shared);
  const clock = new SharedClock(job.shared);
  const outcomes: unknown[] = [];
  for (const [index, step] of steps.entries()) {
    if (step.actor !== job.actor) continue;
    for (let turn = Atomics.load(words, TURN); turn !== index; turn = Atomics.load(words, TURN))
      waitWhile(words, TURN, turn);
    outcomes.push({
      answer: answerOf(ledger, clock, step.operation),
      seen: see(ledger, clock, job.accounts),
    });
    Atomics.store(words, TURN, index + 1);
    Atomics.notify(words, TURN);
  }
  return outcomes;
}

export function see(ledger: Ledger, clock: Clock, accounts: number): unknown {
  return {
    accounts: Array.from({ length: accounts }, (_, index) => {
      const account = index as AccountIndex;
      const [planIndex, active] = [ledger.planIndexOf(account), ledger.isActive(account)];
      const snapshot = ledger.snapshot(account);
      return { ...snapshot, planIndex, active, resetOfDay: resetOfDay(snapshot.dayNumber, clock.wallMs()) };
    }),
  };
}

function answerOf(ledger: Ledger, clock: SharedClock, operation: Operation): unknown {
  try {
    return perform(ledger, clock, operation);
  } catch (error) {
    // The next step shall have its turn, and the comparison tells what was thrown.
    return { thrown: String(error) };
  }
}

function perform(ledger: Ledger, clock: SharedClock, operation: Operation): unknown {
  switch (operation.kind) {
    case 'open':
      ledger.openAccount(operation.account, operation.state);
      ledger.minute.restore(operation.account, operation.used, operation.ageMs);
      return undefined;
    case 'take':
      return { ...ledger.minute.take(operation.account, operation.limit) };
    case 'admit': {
      const { slot, account, callsPerDay, hold } = operation;
      const admission = admitTo(ledger, slot, account, callsPerDay, hold);
      return admission === 'admitted' ? ledger.takenOf(slot).dayNumber : admission;
    }
    case 'settle': {
      const settlement = ledger.settle(operation.slot, operation.cost);
      return settlement === undefined ? undefined : { ...settlement };
    }
    case 'release':
      return ledger.release(operation.slot);
    case 'reverse':
      ledger.reverse(takenOfDay(operation.account, operation.dayNumber), operation);
      return undefined;
    case 'releaseSlots':
      return ledger.releaseSlots(operation.first, operation.count);
    case 'credit':
      return ledger.credit(operation.account, operation.amount);
    case 'setPlan':
      ledger.setPlan(operation.account, operation.planIndex);
      return undefined;
    case 'setActive':
      ledger.setActive(operation.account, operation.active);
      return undefined;
    case 'drain': {
      const drained: number[] = [];
      ledger.dirty.drain((account) => drained.push(account), 32);
      return drained.sort((one, other) => one - other);
    }
    case 'time':
      clock.set(operation.monotonic, operation.wall);
      return undefined;
  }
}

interface ModelAccount {
  credited: bigint;
  spent: bigint;
  uncovered: bigint;
  dayNumber: number;
  dayCalls: number;
  planIndex: number;
  active: boolean;
  dirty: boolean;
  /** Permits and the tick they were given in. */
  permits: { readonly tick: number; readonly count: number }[];
}

export interface ModelCall {
  readonly account: number;
  readonly dayNumber: number;
  readonly hold: bigint;
}

/** A word with nothing counted tells no day whose number modulo 2,048 is 0. */
const lastDayOf = ({ dayNumber, dayCalls }: Pick<ModelAccount, 'dayNumber' | 'dayCalls'>): number =>
  dayCalls === 0 && dayNumber % 2_048 === 0 ? 0 : dayNumber;

const least = (one: bigint, other: bigint): bigint => (one < other ? one : other);

export class ModelLedger {
  readonly accounts: ModelAccount[];
  /** Calls in flight, by slot. */
  readonly calls = new Map<number, ModelCall>();
  monotonic = 0;
  wall = 0;

  constructor(accounts: number) {
    this.accounts = Array.from({ length: accounts }, () => ({
      credited: 0n,
      spent: 0n,
      uncovered: 0n,
      dayNumber: 0,
      dayCalls: 0,
      planIndex: 0,
      active: false,
      dirty: false,
      permits: [],
    }));
  }

  get tick(): number {
    return Math.floor(this.monotonic / TICK_32NDS);
  }

  get today(): number {
    return Math.floor((this.wall + ZONE_32NDS) / DAY_32NDS);
  }

  heldOf(account: number): bigint {
    return [...this.calls.values()].reduce(
      (sum, call) => sum + (call.account === account ? call.hold : 0n),
      0n,
    );
  }

  callsInFlightOf(account: number): number {
    return [...this.calls.values()].filter((call) => call.account === account).length;
  }

  availableOf(account: number): bigint {
    const { credited, spent } = this.accounts[account]!;
    return credited - spent - this.heldOf(account);
  }

  /** Permits given so far that weigh in `tick`. */
  usedOf(account: number, tick: number): number {
    const weighing = this.accounts[account]!.permits.filter((permit) => permit.tick > tick - SPAN_TICKS);
    return weighing.reduce((sum, permit) => sum + permit.count, 0);
  }

  #dayOf(dayNumber: number): number {
    return dayNumber > this.today + 1 ? this.today : Math.max(dayNumber, this.today);
  }

  see(): unknown {
    return {
      accounts: this.accounts.map(({ dirty: _dirty, permits: _permits, ...account }, index) => ({
        ...account,
        dayNumber: lastDayOf(account),
        available: this.availableOf(index),
        held: this.heldOf(index),
        minuteUsed: this.usedOf(index, this.tick),
        callsInFlight: this.callsInFlightOf(index),
        resetOfDay: ((this.#dayOf(lastDayOf(account)) + 1) * DAY_32NDS - ZONE_32NDS) / 32,
      })),
    };
  }

  apply(operation: Operation): unknown {
    switch (operation.kind) {
      case 'open': {
        const tick = Math.floor((this.monotonic - operation.ageMs * 32) / TICK_32NDS);
        const permits = [{ tick: Math.max(0, tick), count: operation.used }];
        Object.assign(this.accounts[operation.account]!, operation.state, { permits });
        return undefined;
      }
      case 'take':
        return this.#take(operation.account, operation.limit);
      case 'admit':
        return this.#admit(operation);
      case 'settle':
        return this.#settle(operation.slot, operation.cost);
      case 'release':
        return this.#release(operation.slot);
      case 'reverse': {
        const account = this.accounts[operation.account]!;
        account.spent -= operation.charged;
        account.uncovered =
          account.uncovered > operation.uncovered ? account.uncovered - operation.uncovered : 0n;
        account.dirty = true;
        this.#giveBackCall(operation.account, operation.dayNumber);
        return undefined;
      }
      case 'releaseSlots': {
        const slots = Array.from({ length: operation.count }, (_, n) => operation.first + n);
        return slots.filter((slot) => this.#release(slot)).length;
      }
      case 'credit': {
        const account = this.accounts[operation.account]!;
        const { amount } = operation;
        if (amount > 0n && account.credited + amount > MONEY_MAX) return false;
        if (amount < 0n && this.availableOf(operation.account) + amount < 0n) return false;
        account.credited += amount;
        account.dirty = true;
        return true;
      }
      case 'setPlan':
        this.accounts[operation.account]!.planIndex = operation.planIndex;
        return undefined;
      case 'setActive':
        this.accounts[operation.account]!.active = operation.active;
        return undefined;
      case 'drain': {
        const drained = [...this.accounts.keys()].filter((account) => this.accounts[account]!.dirty);
        for (const account of this.accounts) account.dirty = false;
        return drained;
      }
      case 'time':
        this.monotonic = operation.monotonic;
        this.wall = operation.wall;
        return undefined;
    }
  }

  #take(index: number, limit: number): unknown {
    const account = this.accounts[index]!;
    const used = this.usedOf(index, this.tick);
    const admitted = used < limit;
    let resetTick = this.tick + 1;
    if (admitted) {
      account.permits.push({ tick: this.tick, count: 1 });
      account.dirty = true;
      resetTick = this.tick + SPAN_TICKS;
    } else {
      while (this.usedOf(index, resetTick) >= limit) resetTick++;
    }
    const waitMs = Math.ceil((resetTick * TICK_32NDS - this.monotonic) / 32);
    return {
      admitted,
      remaining: admitted ? limit - used - 1 : Math.max(0, limit - used),
      resetWallMs: Math.floor(this.wall / 32) + waitMs + 1,
      mayAskForMore: false,
    };
  }

  #admit({ account: index, slot, callsPerDay, hold }: Operation & { kind: 'admit' }): unknown {
    const account = this.accounts[index]!;
    account.dayNumber = lastDayOf(account);
    // One that was set back by days takes the count with it.
    if (account.dayNumber > this.today + 1) account.dayNumber = this.today;
    // A calendar that was set back goes on with the later day.
    const dayNumber = Math.max(account.dayNumber, this.today);
    const dayCalls = dayNumber === account.dayNumber ? account.dayCalls : 0;
    if (dayCalls >= callsPerDay) return 'daily_limit_exceeded';
    // The day has begun for this account, also where its money then does not do.
    account.dayNumber = dayNumber;
    account.dayCalls = dayCalls;
    // Also if the call of the day is given back: a flush may have read it.
    account.dirty = true;
    if (hold > this.availableOf(index)) return 'insufficient_quota';
    account.dayCalls++;
    this.calls.set(slot, { account: index, dayNumber, hold });
    return dayNumber;
  }

  #settle(slot: number, cost: bigint): unknown {
    const call = this.calls.get(slot);
    if (call === undefined) return undefined;
    this.calls.delete(slot);
    const account = this.accounts[call.account]!;
    const charged = least(cost, this.availableOf(call.account));
    const uncovered = cost - charged;
    account.spent += charged;
    account.uncovered = least(MONEY_MAX, account.uncovered + uncovered);
    account.dirty = true;
    return { charged, uncovered };
  }

  #release(slot: number): boolean {
    const call = this.calls.get(slot);
    if (call === undefined) return false;
    this.calls.delete(slot);
    this.#giveBackCall(call.account, call.dayNumber);
    this.accounts[call.account]!.dirty = true;
    return true;
  }

  #giveBackCall(index: number, dayNumber: number): void {
    const account = this.accounts[index]!;
    if (account.dayNumber === dayNumber && account.dayCalls > 0) account.dayCalls--;
  }
}
