/**
 * Records what each call in flight has taken: one record a call slot, in shared memory. `Calls` opens, claims
 * and closes them. Any thread, unless a method says otherwise.
 *
 *     free ──open──> held ──claim──> settling ──close──> free
 *
 * A slot belongs to one listener, which alone opens it. If a listener settles a call while the main thread,
 * which takes the listener for dead, releases the call, the compare-exchange of `claim` gives the record to
 * one of the two. The other words are written before the state becomes held, and read only by the thread that
 * has claimed the record or owns the slot. A record that a listener had claimed when its thread ended is
 * closed by the main thread (Ledger.freeClaimedSlots), or no successor could use the slot.
 *
 * Must hold: a call is settled or released once, whoever claims it. Further tests:
 * test/unit/ledger/ledger.test.ts (who settles and who releases), test/threads/ledger-hammer.test.ts.
 */
import { invariant } from '../core/errors.js';
import { GROUP_DEPTH_MAX } from '../core/limits.js';
import { QUOTA_SCOPES } from '../core/quotas.js';
import {
  asAccountIndex,
  asPicoUnits,
  type Branded,
  type CallSlot,
  type GroupIndex,
  type KeyIndex,
  type ModelScopeIndex,
  type PicoUnits,
} from '../core/units.js';
import { indexIn, type LedgerViews, wordOf } from './layout.js';
import * as layout from './reservation-layout.js';

const STATE_FREE = 0;
const STATE_HELD = 1;
const STATE_SETTLING = 2;

/**
 * A position in the scope chain of a call, and in `Taken.masks`: those of QUOTA_SCOPES (core/quotas.ts), and
 * groups have all positions from GROUP_SCOPE on. The record in shared memory has bytes for seven positions
 * (reservation-layout.ts). A type of its own, so that nobody passes the slot of a scope in its place.
 */
export type ScopePosition = Branded<number, 'ScopePosition'>;
export const [KEY_SCOPE, ACCOUNT_SCOPE, MODEL_SCOPE, GROUP_SCOPE] =
  QUOTA_SCOPES.keys() as Iterable<number> as [ScopePosition, ScopePosition, ScopePosition, ScopePosition];
export const FIRST_SCOPE = KEY_SCOPE;
export const SCOPES_MAX = GROUP_SCOPE + GROUP_DEPTH_MAX;
invariant(
  layout.TAKEN_MASKS * 4 + SCOPES_MAX <= layout.RESERVATION_WORDS32 * 4,
  'the masks of a call fit into its record',
);

/** The position in QUOTA_SCOPES of the scope at that position in the chain. */
export const kindIndexOf = (scope: ScopePosition): number => Math.min(scope, GROUP_SCOPE);

/** What a call took of its scopes, besides the hold. */
export type Taken = ReturnType<typeof createTaken>;

/** The highest bit of a byte of `masks`; the seven extended quotas have the lower ones. */
export const DAY_BIT = 1 << 7;
/** `Taken.dayNumber` of a free call (`CallNeeds.isFree`), which takes no call of a day. */
export const NO_DAY = -1;

/** A Taken of no call, to be filled by `Reservations.read` or `ScopeChain.set`. Each thread reuses one. */
export function createTaken() {
  return {
    account: asAccountIndex(0),
    /** The day whose call was taken, in days since 1970-01-01 UTC+8; NO_DAY if none was. */
    dayNumber: 0,
    /** How many of `masks` are valid. If 0, the call took of no other quota, and all below is not valid. */
    scopeCount: 0,
    key: undefined as KeyIndex | undefined,
    /** The account's rule for the model. */
    model: undefined as ModelScopeIndex | undefined,
    /** The account's own group. The groups above it are not recorded: ScopeChain.recall finds them. */
    group: undefined as GroupIndex | undefined,
    /** The day and the month in `quota_timezone`, of which all quotas but calls a day were taken. */
    day: 0,
    month: 0,
    tokens: 0,
    /** Which quotas of each scope were taken: bit n for the extended quota n, DAY_BIT for calls a day. */
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
    return Atomics.load(this.#words32, stateAt(slot)) === STATE_FREE;
  }

  /** Records what a call has taken. Checks nothing: `Calls` has seen the slot free before it took. */
  open(slot: CallSlot, hold: PicoUnits, taken: Taken): void {
    const words = this.#words32;
    const first = slot * layout.RESERVATION_WORDS32;
    words[first + layout.ACCOUNT] = taken.account;
    words[first + layout.DAY_NUMBER] = taken.dayNumber;
    words[first + layout.SCOPE_COUNT] = taken.scopeCount;
    this.#words64[slot * layout.RESERVATION_WORDS64 + layout.HOLD] = hold;
    if (taken.scopeCount > 0) {
      words[first + layout.CALL_KEY] = wordOf(taken.key);
      words[first + layout.CALL_MODEL] = wordOf(taken.model);
      words[first + layout.CALL_GROUP] = wordOf(taken.group);
      words[first + layout.CALENDAR_DAY] = taken.day;
      words[first + layout.CALENDAR_MONTH] = taken.month;
      this.#floats[slot * layout.RESERVATION_WORDS64 + layout.TOKENS] = taken.tokens;
      const masks = (first + layout.TAKEN_MASKS) * 4;
      for (let scope = 0; scope < taken.scopeCount; scope++) this.#bytes[masks + scope] = taken.masks[scope]!;
    }
    Atomics.store(words, stateAt(slot), STATE_HELD);
  }

  /** True for exactly one caller, which reads the record, charges or gives back, and then closes it. */
  claim(slot: CallSlot): boolean {
    return Atomics.compareExchange(this.#words32, stateAt(slot), STATE_HELD, STATE_SETTLING) === STATE_HELD;
  }

  /** True while the thread that has claimed the record settles or releases the call. */
  isClaimed(slot: CallSlot): boolean {
    return Atomics.load(this.#words32, stateAt(slot)) === STATE_SETTLING;
  }

  /** Reads what the call took into `taken`, and returns `taken`. */
  read(slot: CallSlot, taken: Taken): Taken {
    const words = this.#words32;
    const first = slot * layout.RESERVATION_WORDS32;
    taken.account = asAccountIndex(words[first + layout.ACCOUNT]!);
    taken.dayNumber = words[first + layout.DAY_NUMBER]!;
    taken.scopeCount = words[first + layout.SCOPE_COUNT]!;
    if (taken.scopeCount === 0) return taken;
    taken.key = indexIn(words[first + layout.CALL_KEY]!) as KeyIndex | undefined;
    taken.model = indexIn(words[first + layout.CALL_MODEL]!) as ModelScopeIndex | undefined;
    taken.group = indexIn(words[first + layout.CALL_GROUP]!) as GroupIndex | undefined;
    taken.day = words[first + layout.CALENDAR_DAY]!;
    taken.month = words[first + layout.CALENDAR_MONTH]!;
    taken.tokens = this.#floats[slot * layout.RESERVATION_WORDS64 + layout.TOKENS]!;
    const masks = (first + layout.TAKEN_MASKS) * 4;
    for (let scope = 0; scope < taken.scopeCount; scope++) taken.masks[scope] = this.#bytes[masks + scope]!;
    return taken;
  }

  /** The hold of the call. Who may ask: see the header. */
  holdOf(slot: CallSlot): PicoUnits {
    return asPicoUnits(this.#words64[slot * layout.RESERVATION_WORDS64 + layout.HOLD]!);
  }

  /** Frees the slot. Called by the thread that has claimed the record, once it needs no word of it. */
  close(slot: CallSlot): void {
    // A plain load will do, because no other thread changes a claimed record.
    const isClaimed = this.#words32[stateAt(slot)] === STATE_SETTLING;
    invariant(isClaimed, 'a call is closed once, by the thread that has claimed it');
    Atomics.store(this.#words32, stateAt(slot), STATE_FREE);
  }
}

function stateAt(slot: CallSlot): number {
  return slot * layout.RESERVATION_WORDS32 + layout.STATE;
}
