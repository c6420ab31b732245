/**
 * Computes what operators are shown of sharing. sharingSnapshot returns the state of the coordinator and of
 * the registry: gateway/shared-accounting.ts calls it for the status page and the metrics. useOf returns how
 * much of a scope is used, held and leased: shared-registry.ts calls it for statements. Pure; main thread.
 *
 * Must hold, of this host's processes: what they reported as used of a stock is not shown as unused, and an
 * unexpired permit is shown as used only if a call took it. Their counts must be read before the
 * coordinator's view (ScopeView), which may have later asks of theirs: shared-registry.ts does so in
 * `#usesOf` (also test/unit/sharing/sharing-stats.calls-use.test.ts).
 */
import { QUOTA_KINDS, type QuotaName } from '../core/quotas.js';
import { asPicoUnits, maxOf } from '../core/units.js';
import type { StockHeld } from '../ledger/leased-stocks.js';
import type { SharedUse } from '../registry/account-statement.js';
import type { QuotaCount } from '../registry/quota-use.js';
import type { SharingSnapshot } from '../telemetry/metrics-source.js';
import type { ContactState } from './coordinator-contact.js';
import {
  entriesOf,
  type ScopeView,
  SPEND_UNIT,
  type StockName,
  type Stocks,
  type StockView,
} from './coordinator.js';
import type { EqualShare } from './equal-share.js';
import type { RegistryContactState } from './registry-contact.js';

export interface ManagerState extends ContactState {
  /** How many scopes are leased or waited for. */
  readonly scopes: number;
  readonly waits: number; // requests that wait for a lease
}

export interface SharingContext {
  readonly manager: ManagerState;
  /** Undefined if only processes of this host share. */
  readonly hosts:
    | {
        /** The coordinator of the calls' leases. */
        readonly leaseCoordinator: Pick<EqualShare, 'isAlone' | 'silentMs'>;
        readonly registry: RegistryContactState;
      }
    | undefined;
  /** The time of the monotonic clock. */
  readonly nowMs: number;
}

export function sharingSnapshot({ manager, hosts, nowMs }: SharingContext): SharingSnapshot {
  const { lost, exchanges, failures, scopes, waits } = manager;
  return {
    with: hosts === undefined ? 'processes' : 'hosts',
    ...lossOf(lost, hosts?.leaseCoordinator, nowMs),
    exchanges,
    failures,
    leased: scopes,
    waits,
    registry: hosts && {
      state: hosts.registry.kind,
      reason: hosts.registry.kind === 'following' ? undefined : hosts.registry.reason,
    },
  };
}

function lossOf(
  lost: ManagerState['lost'],
  leaseCoordinator: Pick<EqualShare, 'isAlone' | 'silentMs'> | undefined,
  nowMs: number,
): Pick<SharingSnapshot, 'state' | 'reason' | 'lostMs'> {
  if (leaseCoordinator?.isAlone === true) {
    // The lease manager knows of no loss while the node replies to its own calls.
    const reason = lost?.message ?? 'the server of sharing has not replied';
    return { state: 'alone', reason, lostMs: leaseCoordinator.silentMs };
  }
  if (lost === undefined) return { state: 'connected', reason: undefined, lostMs: 0 };
  const state = lost.reason === 'quarantine' ? 'quarantine' : 'lost';
  return { state, reason: lost.message, lostMs: nowMs - lost.sinceMs };
}

/** What the calls of one process use of one scope, as the process counts it. */
export interface CallsUse {
  readonly scope: string;
  readonly slot: number; // of the process
  readonly minute: {
    /** Permits that no request has used, and whose return the coordinator has not heard of. */
    readonly unused: number;
    /** The number of the last ask whose reply was applied: `unused` has its grant. */
    readonly heardNumber: number;
  };
  readonly stocks: Stocks<StockHeld>;
}

/** The uses by the id of their scope: of each scope at most one of each process. */
export function groupByScope(uses: readonly CallsUse[]): Map<string, CallsUse[]> {
  const usesByScope = new Map<string, CallsUse[]>();
  for (const use of uses) usesByScope.set(use.scope, [...(usesByScope.get(use.scope) ?? []), use]);
  return usesByScope;
}

const NEVER_ASKED: StockView = { period: 0, used: 0n, unused: 0n }; // no node has asked for the stock

/**
 * Divides what the coordinator counts of a stock into what is used, held and leased. `processes`: what the
 * processes of this host count. A process may have reported more after it was read. So its count replaces its
 * record at the coordinator only if the count is higher: if it counted 23 and has reported 20, then 3 more
 * are used, and 3 less leased.
 *
 * The slot is enough to find the record of a process: the view has records of this host alone, and a slot
 * has one life at a time. If another life got the slot after the count was read, this one result is inexact.
 */
function stockCountOf(name: StockName, view: ScopeView, processes: readonly CallsUse[]): QuotaCount {
  const { period, used: reported, unused } = view.stocks[name] ?? NEVER_ASKED;
  const recordedBySlot = new Map(view.processes.map((process) => [process.slot, process.used[name]]));
  let used = reported;
  let [held, leasedHere] = [0n, 0n];
  for (const { slot, stocks } of processes) {
    const count = stocks[name];
    // The process has no count of the stock, or counts another period than the coordinator.
    if (count?.period !== period) continue;
    // `maxOf`: other threads take and settle while the words of the lease are read.
    const heldByCalls = maxOf(count.granted - count.used - count.available, 0n);
    held += heldByCalls;
    leasedHere += maxOf(count.granted - count.used - heldByCalls, 0n);
    // Without a record the coordinator takes the life for ended, and counts its use in `reported` already.
    const recorded = recordedBySlot.get(slot);
    if (recorded !== undefined) used += maxOf(count.used - recorded, 0n);
  }
  // `maxOf`: a process that has given back, since it was read, what its calls held counts it in `held` still.
  const leased = maxOf(reported + unused - used - held, 0n);
  return { period, used, held, leased, leasedByOthers: maxOf(leased - leasedHere, 0n) };
}

/**
 * Divides the permits that weigh into used and leased. The coordinator can count a permit as used only when
 * it has expired. A process of this host knows better: for its permits its own count replaces the
 * coordinator's.
 *
 * If a process has 12 permits, 8 of them unexpired, the coordinator counts 12 - 8 = 4 as used. If the process
 * counts 3 as unused, 12 - 3 = 9 show as used. But if it has asked again since it was read, it may have got
 * the 8 after that, and its 3 unused may have expired: only 12 - 3 - 8 = 1 is certainly used, and shows so.
 */
function minuteCountOf(view: ScopeView, processes: readonly CallsUse[]): QuotaCount {
  const { weighing, unexpired } = view.minute;
  let used = weighing - unexpired;
  let unusedHere = 0;
  for (const { slot, minute } of processes) {
    unusedHere += minute.unused;
    const recorded = view.processes.find((process) => process.slot === slot)?.minute;
    // Without a record there is no count of the coordinator to replace.
    if (recorded === undefined) continue;
    const unknownPermits = recorded.number <= minute.heardNumber ? 0 : recorded.unexpired;
    const usedHere = Math.max(0, recorded.weighing - minute.unused - unknownPermits);
    used += usedHere - (recorded.weighing - recorded.unexpired);
  }
  // Both bounds: the counts were read at different moments.
  used = Math.max(0, used);
  const leased = Math.max(0, weighing - used);
  return {
    period: 0,
    used: BigInt(used),
    held: 0n,
    leased: BigInt(leased),
    leasedByOthers: BigInt(Math.max(0, leased - unusedHere)),
  };
}

/**
 * The use of an account, a key or a group. What calls of other hosts hold shows as leased, because their
 * processes report it as unused (StockAsk). `processes` is omitted if no process of this host counts the
 * scope.
 */
export function useOf(view: ScopeView, processes: readonly CallsUse[] = []): SharedUse {
  const minute = minuteCountOf(view, processes);
  const countOf = (name: StockName): QuotaCount => stockCountOf(name, view, processes);
  const day = countOf('calls_per_day');
  const callSlots = countOf('calls_in_flight');
  const money = countOf('balance');
  // The balance is no quota: `held` and `leased.money` show it.
  const quotas = entriesOf(view.stocks).flatMap(([name]): [QuotaName, QuotaCount][] =>
    name === 'balance' ? [] : [[name, inQuotaUnit(name, countOf(name))]],
  );
  return {
    heldHere: asPicoUnits(money.held),
    spent: view.spent,
    minute,
    dayNumber: day.period,
    dayCalls: Number(day.used + day.held),
    callsInFlightHere: Number(callSlots.held),
    leased: {
      minute: Number(minute.leased),
      dayCalls: Number(day.leased),
      callsInFlight: Number(callSlots.leased),
      money: asPicoUnits(money.leased),
    },
    quotas: new Map([['requests_per_minute', minute], ...quotas]),
  };
}

/** The count in the unit of the quota: money in pico-units. Leases count spending in SPEND_UNIT. */
function inQuotaUnit(name: QuotaName, count: QuotaCount): QuotaCount {
  const unit = QUOTA_KINDS[name].unit === 'money' ? SPEND_UNIT : 1n;
  return {
    period: count.period,
    used: count.used * unit,
    held: count.held * unit,
    leased: count.leased * unit,
    leasedByOthers: count.leasedByOthers * unit,
  };
}
