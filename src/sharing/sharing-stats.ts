/**
 * The stats of shared limits for operators: the status of the coordinator and of the registry, and how much
 * of what was granted calls use. gateway/shared-accounting.ts and shared-registry.ts call it, for the status
 * page, the metrics and the admin interface. Pure; main thread.
 *
 * Must hold: what a process has reported as used is never shown as unused, although the processes' counts and
 * the coordinator's record, which is of their last asks, are read at different times (also
 * test/unit/sharing/sharing-stats.calls-use.test.ts).
 */
import { QUOTA_KINDS, type QuotaName } from '../core/quotas.js';
import { asPicoUnits, maxOf } from '../core/units.js';
import type { StockHeld } from '../ledger/leased-stocks.js';
import type { AccountUse } from '../registry/account-statement.js';
import type { QuotaCount } from '../registry/quota-use.js';
import type { SharingSnapshot } from '../telemetry/metrics-source.js';
import type { SharingState } from '../telemetry/status-document.js';
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
  readonly waits: number;
}

export interface SharingContext {
  readonly manager: ManagerState;
  /** Undefined if only processes of this host share. */
  readonly hosts:
    | { readonly calls: Pick<EqualShare, 'isAlone' | 'silentMs'>; readonly registry: RegistryContactState }
    | undefined;
  /** The time of the monotonic clock. */
  readonly nowMs: number;
}

export function sharingSnapshot({ manager, hosts, nowMs }: SharingContext): SharingSnapshot {
  const { lost, exchanges, failures, scopes, waits } = manager;
  const isAlone = hosts?.calls.isAlone === true;
  const lossState = lost?.reason === 'quarantine' ? 'quarantine' : 'lost';
  const state: SharingState = isAlone ? 'alone' : lost === undefined ? 'connected' : lossState;
  return {
    with: hosts === undefined ? 'processes' : 'hosts',
    state,
    reason: lost?.message ?? (isAlone ? 'the authority has been silent' : undefined),
    lostMs: isAlone ? hosts.calls.silentMs : lost === undefined ? 0 : nowMs - lost.sinceMs,
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

/** What the calls of one process use of one scope. */
export interface CallsUse {
  readonly scope: string;
  readonly slot: number;
  readonly minute: {
    /** Permits that the coordinator counts as used although no request has used them. */
    readonly unused: number;
    /** The number of the last ask whose grant is in `unused`. */
    readonly heardNumber: number;
  };
  readonly stocks: Stocks<StockHeld>;
}

export function groupByScope(uses: readonly CallsUse[]): Map<string, CallsUse[]> {
  const usesByScope = new Map<string, CallsUse[]>();
  for (const use of uses) usesByScope.set(use.scope, [...(usesByScope.get(use.scope) ?? []), use]);
  return usesByScope;
}

const UNKNOWN: StockView = { period: 0, used: 0n, unused: 0n };

/**
 * Divides what the coordinator counts of a stock into what calls use and what is leased. `processes` is what
 * the processes of this host count; it must have been read before `view`.
 *
 * Between the two readings a process may be granted more and report more as used. So the process's count
 * replaces the coordinator's record of the process only if the count is higher. A grant counts as leased
 * unless it was reported as used.
 */
function stockUseOf(name: StockName, view: ScopeView, processes: readonly CallsUse[]): QuotaCount {
  const { period, used: reported, unused } = view.stocks[name] ?? UNKNOWN;
  const recordedBySlot = new Map(view.processes.map((process) => [process.slot, process.used[name]]));
  let used = reported;
  let [held, leasedHere] = [0n, 0n];
  for (const { slot, stocks } of processes) {
    const count = stocks[name];
    if (count?.period !== period) continue;
    const heldByCalls = maxOf(count.granted - count.used - count.available, 0n);
    held += heldByCalls;
    leasedHere += maxOf(count.granted - count.used - heldByCalls, 0n);
    // Without a record the life has ended for the coordinator, which has counted its use already.
    const recorded = recordedBySlot.get(slot);
    if (recorded !== undefined) used += maxOf(count.used - recorded, 0n);
  }
  const leased = maxOf(reported + unused - used - held, 0n);
  return { period, used, held, leased, leasedElsewhere: maxOf(leased - leasedHere, 0n) };
}

/** As stockUseOf, of the permits of the minute; calls hold none of them. */
function minuteUseOf(view: ScopeView, processes: readonly CallsUse[]): QuotaCount {
  const { weighing, unexpired } = view.minute;
  let used = weighing - unexpired;
  let unusedHere = 0;
  for (const { slot, minute } of processes) {
    unusedHere += minute.unused;
    const recorded = view.processes.find((process) => process.slot === slot)?.minute;
    if (recorded === undefined) continue;
    // If the process has asked since it was read, it is not known which of its valid permits are used.
    const unknownPermits = recorded.number <= minute.heardNumber ? 0 : recorded.unexpired;
    const usedHere = Math.max(0, recorded.weighing - minute.unused - unknownPermits);
    used += usedHere - (recorded.weighing - recorded.unexpired);
  }
  used = Math.max(0, used);
  const leased = Math.max(0, weighing - used);
  return {
    period: 0,
    used: BigInt(used),
    held: 0n,
    leased: BigInt(leased),
    leasedElsewhere: BigInt(Math.max(0, leased - unusedHere)),
  };
}

/** The use of an account. What calls of other hosts hold of slots and money shows as leased. */
export function useOf(view: ScopeView, processes: readonly CallsUse[] = []): AccountUse {
  const minute = minuteUseOf(view, processes);
  const uses = new Map(entriesOf(view.stocks).map(([name]) => [name, stockUseOf(name, view, processes)]));
  const useOfStock = (name: StockName): QuotaCount => uses.get(name) ?? stockUseOf(name, view, processes);
  const day = useOfStock('calls_per_day');
  const slots = useOfStock('calls_in_flight');
  const money = useOfStock('balance');
  const quotas = Array.from(uses).flatMap(([name, count]): [QuotaName, QuotaCount][] =>
    name === 'balance' ? [] : [[name, inQuotaUnit(name, count)]],
  );
  return {
    held: asPicoUnits(money.held),
    spent: view.spent,
    minute,
    dayNumber: day.period,
    dayCalls: Number(day.used + day.held),
    callsInFlight: Number(slots.held),
    leased: {
      minute: Number(minute.leased),
      dayCalls: Number(day.leased),
      callsInFlight: Number(slots.leased),
      money: asPicoUnits(money.leased),
    },
    quotas: new Map([['requests_per_minute', minute], ...quotas]),
  };
}

/** The count in the unit of the quota: money in pico-units, which leases count in SPEND_UNIT. */
function inQuotaUnit(name: QuotaName, count: QuotaCount): QuotaCount {
  const unit = QUOTA_KINDS[name].unit === 'money' ? SPEND_UNIT : 1n;
  return {
    period: count.period,
    used: count.used * unit,
    held: count.held * unit,
    leased: count.leased * unit,
    leasedElsewhere: count.leasedElsewhere * unit,
  };
}
