/**
 * The money of an account if it is shared with other processes: threads take from what the coordinator
 * granted to this process. counters.ts chooses it; the lease manager puts the grants in, by leases.ts. Any
 * thread, unless a method says main thread.
 *
 * `credited` is what was granted less what was given back. So the law of balance.ts holds of this process
 * alone, and what it was granted and has not spent is credited - spent.
 */
import { type AccountIndex, asPicoUnits, type PicoUnits } from '../core/units.js';
import { Balance } from './balance.js';
import { COUNTED_WORDS64, type LedgerViews, LOW_MONEY, MONEY_HELD_BY_OTHERS } from './layout.js';

export class LeasedBalance extends Balance {
  readonly #records64: BigInt64Array;
  readonly #onLow: (account: AccountIndex) => void;

  /** `onLow` is called by the thread whose hold leaves less than LOW_MONEY. */
  constructor(views: LedgerViews, onLow: (account: AccountIndex) => void) {
    super(views);
    this.#records64 = views.accounts.records64;
    this.#onLow = onLow;
  }

  override hold(account: AccountIndex, amount: PicoUnits): boolean {
    if (!super.hold(account, amount)) return false;
    const low = Atomics.load(this.#records64, account * COUNTED_WORDS64 + LOW_MONEY);
    const left = super.available(account);
    if (left < low && left + amount >= low) this.#onLow(account);
    return true;
  }

  override balance(account: AccountIndex): PicoUnits {
    const heldByOthers = Atomics.load(this.#records64, account * COUNTED_WORDS64 + MONEY_HELD_BY_OTHERS);
    return asPicoUnits(super.available(account) + heldByOthers);
  }

  /**
   * Does nothing. When the store no longer has the charge, the coordinator may grant the money to any
   * process. Until that flush it counts as held; then `Leases.forgetMoney` takes it out.
   */
  protected override regain(): void {
    return;
  }

  /**
   * Sets all to nothing granted: the coordinator counts what the store knows. Main thread, before the account
   * is first used.
   */
  override set(account: AccountIndex): void {
    const nothing = asPicoUnits(0n);
    super.set(account, nothing, nothing, nothing);
  }
}
