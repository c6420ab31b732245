/**
 * Chooses how a ledger counts: everything that this process admits or, if limits are shared with other
 * processes, what the coordinator granted to this process. Each Ledger calls `countersOf` once. Any thread.
 *
 * Must hold: the choice is made for the whole process, not by account. So each call site sees one class, and
 * V8 inlines the call. Tests: unit/ledger/ledger and unit/ledger/leases test both choices; only the benches
 * would show a site with two classes.
 */
import type { Clock } from '../core/clock.js';
import type { AccountIndex, GroupIndex, KeyIndex, ModelScopeIndex } from '../core/units.js';
import { Balance, LeasedBalance } from './balance.js';
import { DayCounter } from './day.js';
import { LimitedScopes } from './limited-scopes.js';
import type { CountedViews, LedgerBuffers, LedgerViews, Scope } from './layout.js';
import { dayLeases, flightLeases, LeasedStocks } from './leased-stocks.js';
import { LeasedWindow } from './leased-window.js';
import { ScopeQuotas } from './scope-quotas.js';
import { Stocks } from './stocks.js';
import { TokenWindow } from './token-window.js';
import { type MinuteCounter, Window } from './window.js';

export interface Counters {
  readonly keys: LimitedScopes;
  readonly groups: LimitedScopes<GroupIndex>;
  readonly models: LimitedScopes<ModelScopeIndex>;
  readonly quotas: ScopeQuotas;
  readonly window: MinuteCounter<AccountIndex>;
  readonly day: DayCounter;
  readonly balance: Balance;
  /** Calls in flight of accounts. */
  readonly flights: Stocks;
}

/** Called on the request's path, once each time a lease runs low; never if limits are not shared. */
export type OnLowLease = (kind: Scope['kind'], index: number) => void;

export function countersOf(
  { keysMax, groupsMax, timezone, calendar }: LedgerBuffers,
  views: LedgerViews,
  clock: Clock,
  low: OnLowLease,
): Counters {
  const isShared = calendar !== undefined;
  const stocks = isShared ? new LeasedStocks(views.quotas.words64, clock) : new Stocks(views.quotas.words64);
  const window = isShared ? undefined : new TokenWindow(views.quotas, clock);
  const quotas = new ScopeQuotas(views.quotas, { stocks, window }, clock, timezone);
  const minuteOf = <Index extends number>(records: CountedViews, onLow: (index: number) => void) =>
    isShared ? new LeasedWindow<Index>(records, clock, onLow) : new Window<Index>(records, clock);
  const dayOf = (records: CountedViews, onLow: (index: number) => void) =>
    isShared
      ? new DayCounter(
          records,
          clock,
          new LeasedStocks(records.records64, clock, dayLeases(records.records64)),
          onLow,
        )
      : new DayCounter(records, clock);
  const lowOf = (kind: Scope['kind']) => (index: number) => low(kind, index);
  const limited = <Index extends number>(max: number, kind: 'key' | 'group' | 'model') => {
    const [records, onLow] = [views[`${kind}s`], lowOf(kind)];
    return new LimitedScopes<Index>(max, records, minuteOf(records, onLow), dayOf(records, onLow), quotas);
  };
  const onLow = lowOf('account');
  return {
    quotas,
    keys: limited<KeyIndex>(keysMax, 'key'),
    groups: limited<GroupIndex>(groupsMax, 'group'),
    models: limited<ModelScopeIndex>(views.modelPairs.length, 'model'),
    window: minuteOf(views.accounts, onLow),
    day: dayOf(views.accounts, onLow),
    balance: isShared ? new LeasedBalance(views, onLow) : new Balance(views),
    flights: isShared
      ? new LeasedStocks(views.besides64, clock, flightLeases(views.accounts.records64))
      : new Stocks(views.besides64, false),
  };
}
