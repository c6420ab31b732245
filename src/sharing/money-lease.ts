/**
 * The lease of an account's money. It also collects the account's uncovered charges from what is available
 * (uncovered-charges.ts sets how much). leased-scope.ts makes it; stock-leases.ts has the rest. Main thread.
 *
 * Must hold: what is still to be collected is wanted from the coordinator, until all of it is collected or
 * `setUncovered` ends the collection (test/unit/sharing/uncovered-charges.test.ts). Further tests:
 * test/unit/sharing/stock-leases.test.ts, spent-order.test.ts.
 */
import type { MoneyWords, StockHeld } from '../ledger/leased-stocks.js';
import { FIRST_BATCH, IDLE_MS_PLENTIFUL } from './lease-terms.js';
import { StockLease } from './stock-leases.js';

const TERMS = { firstNeed: 0n, batch: FIRST_BATCH, idleMsPlentiful: IDLE_MS_PLENTIFUL };

export class MoneyLease extends StockLease<MoneyWords> {
  /** All that was granted (at first, what the words showed), less what was given back: for `usedOf`. */
  #netGranted: bigint;
  /** How much of the account's uncovered charges is still to be collected. */
  #uncovered = 0n;

  constructor(words: MoneyWords, nowMs: number) {
    const { period, granted, used } = words.read();
    // LeaseManager forgets only a lease of which nothing is outstanding: the coordinator has 0 on record.
    super('balance', words, TERMS, { period, taken: 0n, used }, nowMs);
    this.#netGranted = granted;
  }

  /** Sets how much of the account's uncovered charges to collect, now and from later grants. */
  setUncovered(amount: bigint): void {
    this.#uncovered = amount;
    this.#collect();
  }

  protected override extraNeed(): bigint {
    return this.#uncovered;
  }

  protected override onChanged(amount: bigint): void {
    this.#netGranted += amount;
    if (amount > 0n) this.#collect();
  }

  #collect(): void {
    if (this.#uncovered > 0n) this.#uncovered -= this.words.collect(this.#uncovered);
  }

  /**
   * The words show 0 as used, and a charge leaves `granted` when a flush has written it. So all counts as
   * used that was granted, was not given back, and is no longer in `granted`.
   */
  protected override usedOf({ granted }: StockHeld): number {
    return Number(this.#netGranted - granted);
  }
}
