/**
 * What calls use of accounts, beside what processes were granted of them in advance: each process knows its own calls, and the
 * coordinator knows the leases of all. Pure; main thread.
 */
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { AccountUse } from '../registry/account-uses.js';
import type { ScopeView } from './coordinator.js';

/** Of one account, by the calls of one process. */
export interface CallsUse {
  readonly account: string;
  readonly callsInFlight: number;
  /** Held by calls in flight, or charged and not in the store yet. */
  readonly held: PicoUnits;
  /** Of what the coordinator counts as used: requests of the minute, and calls of that day, that were not. */
  readonly minuteUnused: number;
  readonly dayNumber: number;
  readonly dayUnused: number;
}

/** By the account's id. */
export function byAccount(uses: readonly CallsUse[]): Map<string, CallsUse[]> {
  const found = new Map<string, CallsUse[]>();
  for (const use of uses) found.set(use.account, [...(found.get(use.account) ?? []), use]);
  return found;
}

/**
 * The coordinator counts what calls use as granted, and what was granted of minute and day as used, as of when it last heard of it;
 * `calls` is what each process of this host knows. What other hosts' calls use stays leased, and what they have not used of
 * minute and day stays used: they alone know.
 */
export function useOf(view: ScopeView, calls: readonly CallsUse[] = []): AccountUse {
  const { minuteUsed, dayNumber, dayUsed, spent, moneyOutstanding } = view;
  const sum = (count: (use: CallsUse) => number): number => calls.reduce((all, use) => all + count(use), 0);
  const callsInFlight = sum((use) => use.callsInFlight);
  const held = calls.reduce((all, use) => all + use.held, 0n);
  const leasedMoney = moneyOutstanding - held;
  const minuteUnused = Math.min(
    minuteUsed,
    sum((use) => use.minuteUnused),
  );
  const dayUnused = Math.min(
    dayUsed,
    sum((use) => (use.dayNumber === dayNumber ? use.dayUnused : 0)),
  );
  return {
    held: asPicoUnits(held),
    spent,
    minuteUsed: minuteUsed - minuteUnused,
    dayNumber,
    dayCalls: dayUsed - dayUnused,
    callsInFlight,
    leased: {
      minute: minuteUnused,
      dayCalls: dayUnused,
      callsInFlight: Math.max(0, view.callsInFlight - callsInFlight),
      money: asPicoUnits(leasedMoney < 0n ? 0n : leasedMoney),
    },
  };
}
