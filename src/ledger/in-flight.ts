/**
 * Calls in flight of accounts. Ledger uses InFlight unless limits are shared. Any thread.
 */
import type { AccountIndex } from '../core/units.js';
import {
  BESIDE_WORDS32,
  COUNTED_WORDS32,
  GRANTED_SLOTS,
  IN_FLIGHT,
  type LedgerViews,
  LOW_SLOTS,
} from './layout.js';

/** Counts the calls in flight of accounts, against a limit that comes with each call. */
export class InFlight {
  protected readonly besides: Int32Array;

  constructor(views: LedgerViews) {
    this.besides = views.besides;
  }

  of(account: AccountIndex): number {
    return Atomics.load(this.besides, account * BESIDE_WORDS32 + IN_FLIGHT);
  }

  /**
   * Counts one more call; false, and leaves the count, if it is `callsMax` already. A rejected call is
   * counted for a moment all the same.
   */
  take(account: AccountIndex, callsMax: number): boolean {
    if (Atomics.add(this.besides, account * BESIDE_WORDS32 + IN_FLIGHT, 1) < callsMax) return true;
    Atomics.sub(this.besides, account * BESIDE_WORDS32 + IN_FLIGHT, 1);
    return false;
  }

  giveBack(account: AccountIndex): void {
    Atomics.sub(this.besides, account * BESIDE_WORDS32 + IN_FLIGHT, 1);
  }
}

/**
 * Counts calls in flight against what was granted. It counts the call before it reads the grant, so the main
 * thread that takes a grant back sees every call that uses it.
 */
export class LeasedInFlight extends InFlight {
  readonly #records32: Int32Array;
  readonly #onLow: (account: AccountIndex) => void;

  /** `onLow` is called by the thread whose call leaves only LOW_SLOTS. */
  constructor(views: LedgerViews, onLow: (account: AccountIndex) => void) {
    super(views);
    this.#records32 = views.accounts.records32;
    this.#onLow = onLow;
  }

  override take(account: AccountIndex): boolean {
    const before = Atomics.add(this.besides, account * BESIDE_WORDS32 + IN_FLIGHT, 1);
    const first = account * COUNTED_WORDS32;
    const left = Atomics.load(this.#records32, first + GRANTED_SLOTS) - before - 1;
    if (left < 0) {
      Atomics.sub(this.besides, account * BESIDE_WORDS32 + IN_FLIGHT, 1);
      return false;
    }
    if (left === Atomics.load(this.#records32, first + LOW_SLOTS)) this.#onLow(account);
    return true;
  }
}
