/**
 * What each call in flight has taken: one record a call slot, in shared memory. `Calls` opens, claims and
 * closes them. Any thread, unless a method says otherwise.
 *
 *     free ──open──> held ──claim──> settling ──close──> free
 *
 * A slot belongs to one listener, which alone opens it. If a listener settles a call while the main thread
 * releases it, because it takes the listener for dead, the compare-exchange of `claim` gives the record to
 * one of them. The other words are written before the state becomes held. Only the thread that has claimed
 * the record, or owns the slot, reads them.
 *
 * Must hold: a call is settled or released once, whoever claims it. Tests: unit/ledger/reservations,
 * unit/ledger/ledger (who settles and who releases), threads/ledger-hammer.
 */
import type { GroupIndex, KeyIndex, ModelScopeIndex } from '../core/units.js';
import {
  asAccountIndex,
  type AccountIndex,
  asPicoUnits,
  type CallSlot,
  type PicoUnits,
} from '../core/units.js';
import {
  ACCOUNT,
  CALENDAR_DAY,
  CALENDAR_MONTH,
  CALL_GROUP,
  CALL_KEY,
  CALL_MODEL,
  DAY_NUMBER,
  HOLD,
  type LedgerViews,
  RESERVATION_WORDS32,
  RESERVATION_WORDS64,
  SCOPE_COUNT,
  STATE,
  TAKEN_MASKS,
  TOKENS,
} from './layout.js';

const STATE_FREE = 0;
const STATE_HELD = 1;
const STATE_SETTLING = 2;

/** Positions in the scope chain of a call, and in `Taken.masks`; the last four are groups. */
export const KEY_SCOPE = 0;
export const ACCOUNT_SCOPE = 1;
export const MODEL_SCOPE = 2;
export const GROUP_SCOPE = 3;
export const SCOPES_MAX = 7;

/** What a call took of its scopes, besides the hold. */
export interface Taken {
  account: AccountIndex;
  /** The day from which it took a call, in days since 1970-01-01 UTC+8. */
  dayNumber: number;
  /**
   * How many of `masks` are valid; 0 if the call took of nothing else. Then the fields below are not valid.
   */
  scopes: number;
  key: KeyIndex | undefined;
  /** The account's rule for the model. */
  model: ModelScopeIndex | undefined;
  /** The account's own group; those above it follow. */
  group: GroupIndex | undefined;
  /** The day and the month of the calendar of quotas. */
  day: number;
  month: number;
  tokens: number;
  /** For each scope the quotas it took of: bit n for the extended quota n, DAY_BIT for a call of the day. */
  readonly masks: Uint8Array;
}

export const DAY_BIT = 1 << 7;

export function createTaken(): Taken {
  return {
    account: asAccountIndex(0),
    dayNumber: 0,
    scopes: 0,
    key: undefined,
    model: undefined,
    group: undefined,
    day: 0,
    month: 0,
    tokens: 0,
    masks: new Uint8Array(SCOPES_MAX),
  };
}

export class Reservations {
  readonly #words32: Int32Array;
  readonly #words64: BigInt64Array;
  readonly #floats: Float64Array;
  readonly #bytes: Uint8Array;

  constructor(views: LedgerViews) {
    this.#words32 = views.reservations32;
    this.#words64 = views.reservations64;
    this.#floats = views.reservationFloats;
    this.#bytes = views.reservationBytes;
  }

  isFree(slot: CallSlot): boolean {
    return Atomics.load(this.#words32, slot * RESERVATION_WORDS32 + STATE) === STATE_FREE;
  }

  /** Records what a call has taken. Owner of the slot, which has seen it free. */
  open(slot: CallSlot, hold: PicoUnits, taken: Taken): void {
    const words = this.#words32;
    const first = slot * RESERVATION_WORDS32;
    words[first + ACCOUNT] = taken.account;
    words[first + DAY_NUMBER] = taken.dayNumber;
    words[first + SCOPE_COUNT] = taken.scopes;
    this.#words64[slot * RESERVATION_WORDS64 + HOLD] = hold;
    if (taken.scopes > 0) {
      words[first + CALL_KEY] = taken.key === undefined ? 0 : taken.key + 1;
      words[first + CALL_MODEL] = taken.model === undefined ? 0 : taken.model + 1;
      words[first + CALL_GROUP] = taken.group === undefined ? 0 : taken.group + 1;
      words[first + CALENDAR_DAY] = taken.day;
      words[first + CALENDAR_MONTH] = taken.month;
      this.#floats[slot * RESERVATION_WORDS64 + TOKENS] = taken.tokens;
      const masks = (first + TAKEN_MASKS) * 4;
      for (let scope = 0; scope < taken.scopes; scope++) this.#bytes[masks + scope] = taken.masks[scope]!;
    }
    Atomics.store(words, first + STATE, STATE_HELD);
  }

  /** True for exactly one caller. That caller reads the record, charges or gives back, and then closes it. */
  claim(slot: CallSlot): boolean {
    const state = slot * RESERVATION_WORDS32 + STATE;
    return Atomics.compareExchange(this.#words32, state, STATE_HELD, STATE_SETTLING) === STATE_HELD;
  }

  /** Reads what the call took into `taken`. */
  read(slot: CallSlot, taken: Taken): Taken {
    const words = this.#words32;
    const first = slot * RESERVATION_WORDS32;
    taken.account = asAccountIndex(words[first + ACCOUNT]!);
    taken.dayNumber = words[first + DAY_NUMBER]!;
    taken.scopes = words[first + SCOPE_COUNT]!;
    if (taken.scopes === 0) return taken;
    const key = words[first + CALL_KEY]!;
    const model = words[first + CALL_MODEL]!;
    const group = words[first + CALL_GROUP]!;
    taken.key = key === 0 ? undefined : ((key - 1) as KeyIndex);
    taken.model = model === 0 ? undefined : ((model - 1) as ModelScopeIndex);
    taken.group = group === 0 ? undefined : ((group - 1) as GroupIndex);
    taken.day = words[first + CALENDAR_DAY]!;
    taken.month = words[first + CALENDAR_MONTH]!;
    taken.tokens = this.#floats[slot * RESERVATION_WORDS64 + TOKENS]!;
    const masks = (first + TAKEN_MASKS) * 4;
    for (let scope = 0; scope < taken.scopes; scope++) taken.masks[scope] = this.#bytes[masks + scope]!;
    return taken;
  }

  holdOf(slot: CallSlot): PicoUnits {
    return asPicoUnits(this.#words64[slot * RESERVATION_WORDS64 + HOLD]!);
  }

  close(slot: CallSlot): void {
    Atomics.store(this.#words32, slot * RESERVATION_WORDS32 + STATE, STATE_FREE);
  }
}
