/**
 * What each account has spent according to the journal: the figures that go to disk. Main thread.
 *
 * The ledger's own words are ahead of them by what is still in the journal. Were those written instead, the money on disk
 * would not agree with the usage on disk. 16 bytes an account, and pages that are never touched cost nothing.
 */
import { CREDITED_PICO_UNITS_MAX, uncoveredAfter } from '../ledger/balance.js';
import { invariant } from '../core/errors.js';
import { asPicoUnits, type AccountIndex, type PicoUnits } from '../core/units.js';

export class SpentTotals {
  readonly #spent: BigInt64Array;
  readonly #uncovered: BigInt64Array;

  constructor(accountsMax: number) {
    this.#spent = new BigInt64Array(accountsMax);
    this.#uncovered = new BigInt64Array(accountsMax);
  }

  /** As the store has it, at start. */
  set(account: AccountIndex, spent: PicoUnits, uncovered: PicoUnits): void {
    this.#spent[account] = spent;
    this.#uncovered[account] = uncovered;
  }

  /** Amounts are negative where a charge is taken back. */
  add(account: AccountIndex, charged: PicoUnits, uncovered: PicoUnits): void {
    const spent = this.#spent[account]! + charged;
    invariant(
      spent >= 0n && spent <= CREDITED_PICO_UNITS_MAX,
      'what an account has spent is within its bound',
    );
    this.#spent[account] = spent;
    this.#uncovered[account] = uncoveredAfter(this.#uncovered[account]!, uncovered);
  }

  spentOf(account: AccountIndex): PicoUnits {
    return asPicoUnits(this.#spent[account]!);
  }

  uncoveredOf(account: AccountIndex): PicoUnits {
    return asPicoUnits(this.#uncovered[account]!);
  }
}
