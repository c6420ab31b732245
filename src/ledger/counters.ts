/**
 * Chooses how a ledger counts: all that this process admits or, if limits are shared with other processes,
 * what the coordinator granted to it. The choice is the same for a whole process, so that each call site sees
 * one class. Ledger calls it. Any thread.
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, GroupIndex, KeyIndex } from '../core/units.js';
import { Balance } from './balance.js';
import { DayCounter, type DayCalls } from './day.js';
import { InFlight, LeasedInFlight } from './in-flight.js';
import { LimitedScopes } from './limited-scopes.js';
import type { LedgerBuffers, LedgerViews } from './layout.js';
import { LeasedBalance, LeasedDay } from './leased-stock.js';
import { LeasedStocks } from './leased-stocks.js';
import { LeasedWindow } from './leased-window.js';
import { ScopeQuotas } from './scope-quotas.js';
import { Stocks } from './stocks.js';
import { TokenWindow } from './token-window.js';
import { type MinuteCounter, Window } from './window.js';

export interface Counters {
  readonly keys: LimitedScopes;
  readonly groups: LimitedScopes<GroupIndex>;
  readonly quotas: ScopeQuotas;
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
  group?(group: GroupIndex): void;
}

export function countersOf(
  { keysMax, groupsMax, timezone, calendar }: LedgerBuffers,
  views: LedgerViews,
  clock: Clock,
  low: LowLeases,
): Counters {
  const { accounts, keys, groups } = views;
  if (calendar === undefined) {
    const stocks = new Stocks(views.quotas.words64);
    const quotas = new ScopeQuotas(
      views.quotas,
      { stocks, window: new TokenWindow(views.quotas, clock) },
      clock,
      timezone,
    );
    return {
      quotas,
      keys: new LimitedScopes(keysMax, keys, new Window(keys, clock), new DayCounter(keys, clock), quotas),
      groups: new LimitedScopes<GroupIndex>(
        groupsMax,
        groups,
        new Window(groups, clock),
        new DayCounter(groups, clock),
        quotas,
      ),
      window: new Window(accounts, clock),
      day: new DayCounter(accounts, clock),
      balance: new Balance(views),
      inFlight: new InFlight(views),
    };
  }
  const onLow = (account: AccountIndex): void => low.account(account);
  const onLowKey = (key: KeyIndex): void => low.key(key);
  const onLowGroup = (group: GroupIndex): void => low.group?.(group);
  const stocks = new LeasedStocks(views.quotas.words64, clock);
  const quotas = new ScopeQuotas(views.quotas, { stocks, window: undefined }, clock, timezone);
  return {
    quotas,
    keys: new LimitedScopes(
      keysMax,
      keys,
      new LeasedWindow(keys, clock, onLowKey),
      new LeasedDay(keys, clock, onLowKey),
      quotas,
    ),
    groups: new LimitedScopes<GroupIndex>(
      groupsMax,
      groups,
      new LeasedWindow(groups, clock, onLowGroup),
      new LeasedDay(groups, clock, onLowGroup),
      quotas,
    ),
    window: new LeasedWindow(accounts, clock, onLow),
    day: new LeasedDay(accounts, clock, onLow),
    balance: new LeasedBalance(views, onLow),
    inFlight: new LeasedInFlight(views, onLow),
  };
}
