/**
 * Reservations: what each call in flight has taken from its account, in one record a call slot. Any thread.
 *
 *     free ──open──> held ──claim──> settling ──close──> free
 *
 * A slot belongs to one listener, which alone opens it. Claiming is a compare-exchange: of a listener that settles and the
 * main thread that releases what a dead listener held, one gets the record, and the other gets nothing. The other words
 * are written before the state says held, and read only by who has claimed it.
 */
import {
  asAccountIndex,
  asKeyIndex,
  asPicoUnits,
  type AccountIndex,
  type CallSlot,
  type KeyIndex,
  type PicoUnits,
} from '../core/units.js';
import {
  ACCOUNT,
  DAY_KEY,
  DAY_NUMBER,
  HOLD,
  RESERVATION_WORDS32,
  RESERVATION_WORDS64,
  STATE,
  type LedgerViews,
} from './layout.js';

const STATE_FREE = 0;
const STATE_HELD = 1;
const STATE_SETTLING = 2;

export class Reservations {
  readonly #words32: Int32Array;
  readonly #words64: BigInt64Array;

  constructor(views: LedgerViews) {
    this.#words32 = views.reservations32;
    this.#words64 = views.reservations64;
  }

  isFree(slot: CallSlot): boolean {
    return Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + STATE) === STATE_FREE;
  }

  /**
   * Records what was taken for a call; `dayKey` is the key whose call of that day it took besides its account's. Owner of the
   * slot, which it has seen free.
   */
  open(
    slot: CallSlot,
    account: AccountIndex,
    dayNumber: number,
    hold: PicoUnits,
    dayKey: KeyIndex | undefined,
  ): void {
    const first = slot * RESERVATION_WORDS32;
    Atomics.store(this.#words32, first + ACCOUNT, account);
    Atomics.store(this.#words32, first + DAY_NUMBER, dayNumber);
    Atomics.store(this.#words32, first + DAY_KEY, dayKey === undefined ? 0 : dayKey + 1);
    Atomics.store(this.#words64, slot * RESERVATION_WORDS64 + HOLD, hold);
    Atomics.store(this.#words32, first + STATE, STATE_HELD);
  }

  /** True for exactly one caller; who gets true reads the record, gives back or charges, and then closes it. */
  claim(slot: CallSlot): boolean {
    const state = slot * RESERVATION_WORDS32 + STATE;
    return Atomics.compareExchange(this.#words32, state, STATE_HELD, STATE_SETTLING) === STATE_HELD;
  }

  accountOf(slot: CallSlot): AccountIndex {
    return asAccountIndex(Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + ACCOUNT));
  }

  dayNumberOf(slot: CallSlot): number {
    return Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + DAY_NUMBER);
  }

  dayKeyOf(slot: CallSlot): KeyIndex | undefined {
    const word = Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + DAY_KEY);
    return word === 0 ? undefined : asKeyIndex(word - 1);
  }

  holdOf(slot: CallSlot): PicoUnits {
    return asPicoUnits(Atomics.load(this.#words64, slot * RESERVATION_WORDS64 + HOLD));
  }

  close(slot: CallSlot): void {
    Atomics.store(this.#words32, slot * RESERVATION_WORDS32 + STATE, STATE_FREE);
  }
}
