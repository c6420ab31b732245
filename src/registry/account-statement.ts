/**
 * Account statements: an account with its money and counts, as operators read it. LiveState
 * (registry-context.ts) makes them on the main thread. Pure.
 *
 * Must hold: what a process has leased is shown as used only once calls have used it, and a count of an
 * earlier day is never shown as today's. No amount is shown below 0
 * (test/unit/registry/account-statement.test.ts).
 */
import { asPicoUnits, maxOf, type PicoUnits, type WallMs } from '../core/units.js';
import { dayNumberOf } from '../ledger/day.js';
import type { AccountSnapshot } from '../ledger/ledger.js';
import type { AccountRecord, SpendingRecord } from './account-record.js';
import { minuteDayCountsAt, type QuotaCount, type QuotaCounts, type QuotaUse } from './quota-use.js';

/**
 * What the coordinator has granted to all processes, less what they are known to have used or to hold. What
 * other hosts have used since their last report, and their calls' slots and money, is not known: it counts.
 */
interface LeasedAhead {
  /** Permits of the current minute. */
  readonly minute: number;
  readonly dayCalls: number;
  readonly callsInFlight: number;
  readonly money: PicoUnits;
}

/** What all processes that share an account, a key or a group use of it. */
export interface SharedUse {
  /** Held by calls of this host, or charged by these calls and not in the store yet. */
  readonly heldHere: PicoUnits;
  /** Spent by all hosts. */
  readonly spent: PicoUnits;
  /** Permits of the current minute. */
  readonly minute: QuotaCount;
  readonly dayNumber: number;
  readonly dayCalls: number;
  /** Calls in flight on this host. */
  readonly callsInFlightHere: number;
  readonly leased: LeasedAhead;
  readonly quotas: QuotaCounts;
}

/** What the coordinator has reported, by the id of an account, a key or a group. */
export type KnownUses = ReadonlyMap<string, SharedUse>;

/** A group and where it is in the tree of groups. */
export interface GroupPath {
  readonly id: string;
  readonly name: string;
  /** Names from the group at the top to this group. */
  readonly path: readonly string[];
}

export interface AccountStatement {
  readonly record: AccountRecord;
  /** True if the settings do not have the account's plan: its calls are rejected, active or not. */
  readonly planMissing?: boolean;
  /** Absent if the account is in no group. */
  readonly group?: GroupPath;
  /** What is used of the plan's quotas. */
  readonly quotas: readonly QuotaUse[];
  /**
   * The law of the balance: credited = available + held + spent. But a host's copy of the account may lack a
   * credit that was spent already. Then `spent` exceeds `credited`, and the other two are 0.
   */
  readonly available: PicoUnits;
  /** By calls of this host. */
  readonly held: PicoUnits;
  /** By all hosts; without a reply of the coordinator, what this host has flushed. */
  readonly spent: PicoUnits;
  readonly uncovered: PicoUnits;
  readonly callsToday: number;
  readonly requestsThisMinute: number;
  /** On this host. */
  readonly callsInFlight: number;
  /** Present if processes share the account. The money in it is a part of `available`. */
  readonly leased?: LeasedAhead;
}

export type AccountCounts = Omit<AccountStatement, 'planMissing' | 'group' | 'quotas'>;

/**
 * What is left of `credited` besides two other amounts of the law. 0 if they are more: AccountStatement says
 * when more is spent than credited, and a charge that is being written counts as held and spent for a moment.
 */
export function restOf(credited: PicoUnits, spent: PicoUnits, other: PicoUnits): PicoUnits {
  return asPicoUnits(maxOf(credited - spent - other, 0n));
}

/** The statement of a gateway that is alone on its store, from its ledger. */
export function liveStatement(
  record: AccountRecord,
  snapshot: AccountSnapshot,
  nowMs: WallMs,
): AccountCounts {
  return {
    record,
    available: snapshot.available,
    held: snapshot.held,
    spent: snapshot.spent,
    uncovered: snapshot.uncovered,
    callsToday: snapshot.dayNumber >= dayNumberOf(nowMs) ? snapshot.dayCalls : 0,
    requestsThisMinute: snapshot.minuteUsed,
    callsInFlight: snapshot.callsInFlight,
  };
}

const NOTHING = asPicoUnits(0n);

/** The statement as of the last flush, with nothing held. `spending` is undefined if there was no flush. */
export function flushedStatement(
  record: AccountRecord,
  spending: SpendingRecord | undefined,
  nowMs: WallMs,
): AccountCounts {
  const spent = spending?.spent ?? NOTHING;
  return {
    record,
    available: restOf(record.credited, spent, NOTHING),
    held: NOTHING,
    spent,
    uncovered: spending?.uncovered ?? NOTHING,
    callsToday: spending !== undefined && spending.dayNumber >= dayNumberOf(nowMs) ? spending.dayCalls : 0,
    requestsThisMinute: minuteDayCountsAt(spending, nowMs).minuteUsed,
    callsInFlight: 0,
  };
}

/**
 * The statement of processes that share the account: money from the store, and what their calls use now.
 * `use` is undefined if the coordinator did not reply. A charge that is being written may count as held and
 * as spent: so `available` is cut at 0, and `held` is computed by the law of the balance. The amount of
 * leased money is a little older than the others, so it is cut at `available`.
 */
export function sharedStatement(
  flushed: AccountCounts,
  use: SharedUse | undefined,
  nowMs: WallMs,
): AccountCounts {
  if (use === undefined) return flushed;
  const { credited } = flushed.record;
  const { spent, leased } = use;
  const available = restOf(credited, spent, use.heldHere);
  const isToday = use.dayNumber >= dayNumberOf(nowMs);
  return {
    ...flushed,
    available,
    held: restOf(credited, spent, available),
    spent,
    // The store may count calls that a process had not reported when it died.
    callsToday: isToday ? Math.max(use.dayCalls, flushed.callsToday) : flushed.callsToday,
    requestsThisMinute: Number(use.minute.used),
    callsInFlight: use.callsInFlightHere,
    leased: {
      ...leased,
      dayCalls: isToday ? leased.dayCalls : 0,
      money: leased.money < available ? leased.money : available,
    },
  };
}
