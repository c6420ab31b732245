/**
 * The money of an account, by the law credited = available + held + spent. `Calls` (calls.ts) holds and
 * settles; the main thread credits, collects uncovered charges and reads. Any thread, unless a method says
 * main thread.
 *
 * Three words are stored, and `held` is the difference between them. So a thread that stops half-way cannot
 * break the law. Money leaves `available` only by a compare-exchange that saw enough money there, so
 * `available` never goes below zero.
 *
 * No word overflows: `credited` never exceeds CREDITED_PICO_UNITS_MAX, 9 x 10^18, which is below 2^63.
 * Available, held and spent are parts of `credited`, and `uncovered` stops growing at the same bound.
 * Arguments are bigints of any size and are compared before they are stored.
 *
 * The order of writes: money may show as `held` for a moment too long, but is never missing. A hold takes
 * from `available`. A settlement gives what is left of the hold back to `available`, then adds to `spent`. A
 * reader therefore reads `spent` before `available`.
 *
 * Must hold: the law and that order of writes, at every step of every thread. Further test:
 * test/threads/ledger-money.test.ts.
 */
import { invariant } from '../core/errors.js';
import { BALANCE_PICO_UNITS_MAX } from '../core/money.js';
import { type AccountIndex, asPicoUnits, minOf, type PicoUnits } from '../core/units.js';
import * as layout from './layout.js';
import type { LedgerViews } from './layout.js';

export const CREDITED_PICO_UNITS_MAX = asPicoUnits(3n * BALANCE_PICO_UNITS_MAX);
invariant(CREDITED_PICO_UNITS_MAX < 1n << 63n, 'all the money of an account fits a signed word');

const NOTHING = asPicoUnits(0n);

/** What a settled call cost its account. */
export interface Settlement {
  /** Added to `spent`. */
  readonly charged: PicoUnits;
  /** Cost beyond hold and balance. */
  readonly uncovered: PicoUnits;
}

export interface Funds {
  readonly credited: PicoUnits;
  readonly available: PicoUnits;
  readonly held: PicoUnits;
  readonly spent: PicoUnits;
  readonly uncovered: PicoUnits;
}

/**
 * `uncovered` after `amount`, which may be negative, is added. It stays from 0 to CREDITED_PICO_UNITS_MAX:
 * what exceeds nine million units is reported, but never collected.
 */
export function uncoveredAfter(before: bigint, amount: bigint): PicoUnits {
  const uncovered = before + amount;
  if (uncovered < 0n) return NOTHING;
  return uncovered > CREDITED_PICO_UNITS_MAX ? CREDITED_PICO_UNITS_MAX : asPicoUnits(uncovered);
}

export class Balance {
  protected readonly words64: BigInt64Array;
  readonly #settlement: { -readonly [Field in keyof Settlement]: Settlement[Field] } = {
    charged: NOTHING,
    uncovered: NOTHING,
  };

  constructor(views: LedgerViews) {
    this.words64 = views.accounts.records64;
  }

  /** What a new hold may take. */
  available(account: AccountIndex): PicoUnits {
    return asPicoUnits(Atomics.load(this.words64, account * layout.COUNTED_WORDS64 + layout.AVAILABLE));
  }

  /**
   * What callers are told that the account has. LeasedBalance adds what was left at the coordinator, which a
   * hold cannot take yet.
   */
  balance(account: AccountIndex): PicoUnits {
    return this.available(account);
  }

  /** Takes `amount` (not negative) out of `available`. Returns false, and takes nothing, if there is less. */
  hold(account: AccountIndex, amount: PicoUnits): boolean {
    invariant(amount >= 0n, 'a hold is not negative');
    return this.takeAvailable(account, amount, amount) === amount;
  }

  /** Gives back what `hold` took. The caller sees to it that this happens once (reservations.ts). */
  giveBack(account: AccountIndex, held: PicoUnits): void {
    Atomics.add(this.words64, account * layout.COUNTED_WORDS64 + layout.AVAILABLE, held);
  }

  /**
   * Turns `held` into a charge of `cost`, both not negative. What is left of the hold goes back to
   * `available`. A cost beyond the hold is taken from `available`; what is missing there becomes uncovered.
   * Returns one object that the next `settle` overwrites.
   */
  settle(account: AccountIndex, held: PicoUnits, cost: PicoUnits): Settlement {
    invariant(cost >= 0n, 'a cost is not negative');
    const words = this.words64;
    const first = account * layout.COUNTED_WORDS64;
    const settlement = this.#settlement;
    if (cost <= held) {
      settlement.charged = cost;
      settlement.uncovered = NOTHING;
      if (cost < held) Atomics.add(words, first + layout.AVAILABLE, held - cost);
    } else {
      const beyond = asPicoUnits(cost - held);
      const taken = this.takeAvailable(account, NOTHING, beyond);
      settlement.charged = asPicoUnits(held + taken);
      settlement.uncovered = asPicoUnits(beyond - taken);
      if (taken < beyond) this.#addUncovered(account, settlement.uncovered);
    }
    Atomics.add(words, first + layout.SPENT, settlement.charged);
    return settlement;
  }

  /**
   * Charges what settlements left uncovered: at most `amountMax`, what is uncovered, and what is available.
   * Returns how much.
   */
  collect(account: AccountIndex, amountMax: PicoUnits): PicoUnits {
    const uncovered = Atomics.load(this.words64, account * layout.COUNTED_WORDS64 + layout.UNCOVERED);
    const wanted = asPicoUnits(minOf(amountMax, uncovered));
    if (wanted <= 0n) return NOTHING;
    const taken = this.takeAvailable(account, NOTHING, wanted);
    if (taken === 0n) return taken;
    this.#addUncovered(account, asPicoUnits(0n - taken));
    Atomics.add(this.words64, account * layout.COUNTED_WORDS64 + layout.SPENT, taken);
    return taken;
  }

  /** Undoes a settlement. `spent` shrinks before `available` grows, so the money is `held` for a moment. */
  reverse(account: AccountIndex, charged: PicoUnits, uncovered: PicoUnits): void {
    const first = account * layout.COUNTED_WORDS64;
    Atomics.sub(this.words64, first + layout.SPENT, charged);
    this.regain(account, charged);
    if (uncovered > 0n) this.#addUncovered(account, asPicoUnits(0n - uncovered));
  }

  /** Makes the money of a reversed charge available again; LeasedBalance overrides it. */
  protected regain(account: AccountIndex, charged: PicoUnits): void {
    this.giveBack(account, charged);
  }

  /** Credits `amount`, or debits it if negative. False beyond a bound: nothing is changed. Main thread. */
  credit(account: AccountIndex, amount: PicoUnits): boolean {
    const words = this.words64;
    const first = account * layout.COUNTED_WORDS64;
    const credited = Atomics.load(words, first + layout.CREDITED);
    if (amount >= 0n) {
      if (credited + amount > CREDITED_PICO_UNITS_MAX) return false;
      Atomics.store(words, first + layout.CREDITED, credited + amount);
      Atomics.add(words, first + layout.AVAILABLE, amount);
      return true;
    }
    if (!this.hold(account, asPicoUnits(0n - amount))) return false;
    Atomics.store(words, first + layout.CREDITED, credited + amount);
    return true;
  }

  /** All amounts at one moment, in which the law holds. Main thread, which alone changes `credited`. */
  read(account: AccountIndex): Funds {
    const first = account * layout.COUNTED_WORDS64;
    const credited = Atomics.load(this.words64, first + layout.CREDITED);
    const uncovered = Atomics.load(this.words64, first + layout.UNCOVERED);
    const { spent, available } = this.#readSpentAndAvailable(first, credited);
    return {
      credited: asPicoUnits(credited),
      available: asPicoUnits(available),
      held: asPicoUnits(credited - available - spent),
      spent: asPicoUnits(spent),
      uncovered: asPicoUnits(uncovered),
    };
  }

  /** Sets all amounts, nothing held; throws beyond a bound. Main thread, before the account's first use. */
  set(account: AccountIndex, credited: PicoUnits, spent: PicoUnits, uncovered: PicoUnits): void {
    invariant(spent >= 0n && spent <= credited, 'no more was spent than credited');
    invariant(credited <= CREDITED_PICO_UNITS_MAX, 'credited is within its bound');
    invariant(uncovered >= 0n && uncovered <= CREDITED_PICO_UNITS_MAX, 'uncovered is within its bound');
    const first = account * layout.COUNTED_WORDS64;
    Atomics.store(this.words64, first + layout.CREDITED, credited);
    Atomics.store(this.words64, first + layout.SPENT, spent);
    Atomics.store(this.words64, first + layout.UNCOVERED, uncovered);
    Atomics.store(this.words64, first + layout.AVAILABLE, credited - spent);
  }

  /**
   * A call that is reversed between the two loads would be in both. Then `spent` has shrunk, unless another
   * call was charged meanwhile; if so, the sum may exceed `credited`. In both cases all is read again.
   */
  #readSpentAndAvailable(first: number, credited: bigint): { spent: bigint; available: bigint } {
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      const spent = Atomics.load(this.words64, first + layout.SPENT);
      const available = Atomics.load(this.words64, first + layout.AVAILABLE);
      const hasShrunk = Atomics.load(this.words64, first + layout.SPENT) < spent;
      if (!hasShrunk && spent + available <= credited) return { spent, available };
    }
    throw new Error('invariant broken: an account is read in bounded tries');
  }

  /**
   * Takes at most `amountMax` (not negative) out of `available`, or nothing if there is less than
   * `amountMin`. Returns how much; until the caller adds that to `spent`, or takes it out of `credited`, it
   * shows as held.
   */
  takeAvailable(account: AccountIndex, amountMin: PicoUnits, amountMax: PicoUnits): PicoUnits {
    const index = account * layout.COUNTED_WORDS64 + layout.AVAILABLE;
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      const available = Atomics.load(this.words64, index);
      if (available < amountMin) return NOTHING;
      const taken = available < amountMax ? available : amountMax;
      if (Atomics.compareExchange(this.words64, index, available, available - taken) === available) {
        return asPicoUnits(taken);
      }
    }
    throw new Error('invariant broken: money is taken or rejected in bounded tries');
  }

  /** `amount` may be negative. A compare-exchange, because `Atomics.add` would not bound the sum. */
  #addUncovered(account: AccountIndex, amount: PicoUnits): void {
    const index = account * layout.COUNTED_WORDS64 + layout.UNCOVERED;
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      const before = Atomics.load(this.words64, index);
      const after = uncoveredAfter(before, amount);
      if (Atomics.compareExchange(this.words64, index, before, after) === before) return;
    }
    throw new Error('invariant broken: an uncovered cost is recorded in bounded tries');
  }
}

/**
 * The money of an account if limits are shared with other processes: threads take from what the coordinator
 * granted to this process. ledger.ts chooses the class; the lease manager puts grants in, by leases.ts.
 *
 * `credited` is what was granted less what was given back. So the law of Balance holds for this process
 * alone, and credited - spent is what the process was granted and has not spent.
 */
export class LeasedBalance extends Balance {
  readonly #onLow: (account: AccountIndex) => void;

  /** The `hold` that leaves less than LOW_MONEY, where there was no less, calls `onLow`. */
  constructor(views: LedgerViews, onLow: (account: AccountIndex) => void) {
    super(views);
    this.#onLow = onLow;
  }

  /**
   * Does not use `takeAvailable`, because it must know what its own exchange has left, and not what is there
   * by then: of two holds at once, one would hide the other. If `takeAvailable` kept that, V8 would make a
   * BigInt of it for each hold, also where limits are not shared: 20 ns.
   */
  override hold(account: AccountIndex, amount: PicoUnits): boolean {
    invariant(amount >= 0n, 'a hold is not negative');
    const first = account * layout.COUNTED_WORDS64;
    const index = first + layout.AVAILABLE;
    for (let tries = 0; tries < layout.EXCHANGES_MAX; tries++) {
      const available = Atomics.load(this.words64, index);
      if (available < amount) return false;
      const left = available - amount;
      if (Atomics.compareExchange(this.words64, index, available, left) !== available) continue;
      const low = Atomics.load(this.words64, first + layout.LOW_MONEY);
      if (left < low && available >= low) this.#onLow(account);
      return true;
    }
    throw new Error('invariant broken: money is held or rejected in bounded tries');
  }

  override balance(account: AccountIndex): PicoUnits {
    const remaining = Atomics.load(this.words64, account * layout.COUNTED_WORDS64 + layout.MONEY_REMAINING);
    return asPicoUnits(super.available(account) + remaining);
  }

  /**
   * Does nothing: the money counts as held until a flush has removed the charge from the store. Then
   * `Leases.removeReversed` takes the money out of this process, and the coordinator may grant it to any
   * process.
   */
  protected override regain(): void {
    return;
  }

  /** Nothing is granted yet: the coordinator counts what the store knows. Main thread. */
  override set(account: AccountIndex): void {
    super.set(account, NOTHING, NOTHING, NOTHING);
  }
}
