/**
 * Chooses how a ledger counts: all that this process admits or, if limits are shared with other processes,
 * what the coordinator granted to it. The choice is the same for a whole process, so that each call site sees
 * one class. Ledger calls it. Any thread.
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, KeyIndex } from '../core/units.js';
import { Balance } from './balance.js';
import { DayCounter, type DayCalls } from './day.js';
import { InFlight, LeasedInFlight } from './calls.js';
import { KeyLimits } from './key-limits.js';
import type { LedgerBuffers, LedgerViews } from './layout.js';
import { LeasedBalance, LeasedDay } from './leased-stock.js';
import { LeasedWindow } from './leased-window.js';
import { type MinuteCounter, Window } from './window.js';

export interface Counters {
  readonly keys: KeyLimits;
  readonly window: MinuteCounter<AccountIndex>;
  readonly day: DayCalls<AccountIndex>;
  readonly balance: Balance;
  readonly inFlight: InFlight;
}

/**
 * If limits are shared, it is called on the request's path, once each time a lease runs low.
 */
export interface LowLeases {
  account(account: AccountIndex): void;
  key(key: KeyIndex): void;
}

export function countersOf(
  { keysMax, calendar }: LedgerBuffers,
  views: LedgerViews,
  clock: Clock,
  low: LowLeases,
): Counters {
  const { accounts, keys } = views;
  if (calendar === undefined) {
    return {
      keys: new KeyLimits(keysMax, keys, new Window(keys, clock), new DayCounter(keys, clock)),
      window: new Window(accounts, clock),
      day: new DayCounter(accounts, clock),
      balance: new Balance(views),
      inFlight: new InFlight(views),
    };
  }
  const onLow = (account: AccountIndex): void => low.account(account);
  const onLowKey = (key: KeyIndex): void => low.key(key);
  return {
    keys: new KeyLimits(
      keysMax,
      keys,
      new LeasedWindow(keys, clock, onLowKey),
      new LeasedDay(keys, clock, onLowKey),
    ),
    window: new LeasedWindow(accounts, clock, onLow),
    day: new LeasedDay(accounts, clock, onLow),
    balance: new LeasedBalance(views, onLow),
    inFlight: new LeasedInFlight(views, onLow),
  };
}
