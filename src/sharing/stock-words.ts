/**
 * The money of accounts in shared memory, as `StockLease` wants it. Main thread.
 */
import { type AccountIndex, asPicoUnits, type PicoUnits } from '../core/units.js';
import type { Leases } from '../ledger/leases.js';
import type { StockWords } from './stock-leases.js';

/** What the lease of a balance needs to know of charges and their flush. Main thread. */
export interface SpentAccounting {
  /**
   * What this process has charged the account since it started, as far as the store has recorded it as spent.
   */
  flushedOf(account: AccountIndex): PicoUnits;
  /**
   * Charges the account's uncovered charges to what is leased, at most `most`; returns how much. Left out
   * only by tests that have no uncovered charges.
   */
  collect?(account: AccountIndex, most: PicoUnits): PicoUnits;
}

/** Spent is what the store has recorded: until then the coordinator counts a charge as held. */
export function balanceWords(leases: Leases, account: AccountIndex, accounting: SpentAccounting): StockWords {
  return {
    read: () => ({
      period: 0,
      granted: leases.moneyGranted(account) - accounting.flushedOf(account),
      used: 0n,
      available: leases.available(account),
    }),
    add: (_, amount, low) => leases.addMoney(account, asPicoUnits(amount), asPicoUnits(low)),
    takeBack: (most) => leases.takeBackMoney(account, asPicoUnits(most)),
    tell: (remaining) => leases.tellMoney(account, asPicoUnits(remaining)),
    collect: (most) => accounting.collect?.(account, asPicoUnits(most)) ?? 0n,
  };
}
