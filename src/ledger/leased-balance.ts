/**
 * The money of an account where it is shared with other processes: the words mean what this process was lent. Any thread, but
 * for what says main thread.
 *
 * `credited` is what was lent less what was given back, so the law of balance.ts holds of this process alone, and what it is
 * lent and has not spent is credited - spent.
 */
import { asPicoUnits, type AccountIndex, type PicoUnits } from '../core/units.js';
import { Balance } from './balance.js';
import { COUNTED_WORDS64, LOW_MONEY, MONEY_ELSEWHERE, type LedgerViews } from './layout.js';

export class LeasedBalance extends Balance {
  readonly #records64: BigInt64Array;
  readonly #onLow: (account: AccountIndex) => void;

  /** `onLow` is called by whoever takes the hold that leaves little. */
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
    const elsewhere = Atomics.load(this.#records64, account * COUNTED_WORDS64 + MONEY_ELSEWHERE);
    return asPicoUnits(super.available(account) + elsewhere);
  }

  /**
   * Not here: as soon as the store has the charge no more, the authority lends that money to anybody. Until the flush it is in
   * `held`, and then it is forgotten (`Leases.forgetMoney`).
   */
  protected override regain(): void {
    return;
  }

  /** Nothing is lent: what the store knows of the account, the authority counts. Main thread, before the account is first used. */
  override set(account: AccountIndex): void {
    const nothing = asPicoUnits(0n);
    super.set(account, nothing, nothing, nothing);
  }
}
