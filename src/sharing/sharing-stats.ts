/**
 * The stats of shared limits for operators: the status of the coordinator and of the registry, and how much
 * of what was granted calls use. Status page, metrics and the admin interface read it. Pure; main thread.
 *
 * Must hold: what a process has reported as used is never shown as unused, whenever the two were read. Tests:
 * test/unit/sharing/sharing-stats.test.ts, sharing-stats.calls-use.test.ts.
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

/** The state of the lease manager. */
export interface ManagerState extends ContactState {
  /** How many scopes are leased or waited for. */
  readonly scopes: number;
  /** How many requests wait. */
  readonly waits: number;
}

export interface SharingContext {
  readonly manager: ManagerState;
  /** Undefined if only processes of this host share. */
  readonly hosts:
    | { readonly calls: Pick<EqualShare, 'isAlone' | 'silentMs'>; readonly registry: RegistryContactState }
    | undefined;
  /** Of the monotonic clock. */
  readonly nowMs: number;
}

export function sharingSnapshot({ manager, hosts, nowMs }: SharingContext): SharingSnapshot {
  const { lost, exchanges, failures, scopes, waits } = manager;
  const isAlone = hosts?.calls.isAlone === true;
  const unleased = lost?.reason === 'quarantine' ? 'quarantine' : 'lost';
  const state: SharingState = isAlone ? 'alone' : lost === undefined ? 'connected' : unleased;
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
  /** Of the process in its group. */
  readonly slot: number;
  readonly minute: {
    /** Permits that the coordinator counts as used, and no request has used. */
    readonly unused: number;
    /** The number of the last ask whose reply is in `unused`. */
    readonly heardNumber: number;
  };
  readonly stocks: Stocks<StockHeld>;
}

/** By the scope's id. */
export function byScope(uses: readonly CallsUse[]): Map<string, CallsUse[]> {
  const found = new Map<string, CallsUse[]>();
  for (const use of uses) found.set(use.scope, [...(found.get(use.scope) ?? []), use]);
  return found;
}

const UNKNOWN: StockView = { period: 0, used: 0n, unused: 0n };

/**
 * Divides what the coordinator counts of a stock into what calls use and what is leased. `calls` is what the
 * processes of this host know, read before `view`.
 *
 * Between the two readings a process may be granted more and report more as used. So its own count replaces
 * the coordinator's record of it if it is higher. A grant counts as leased unless it was reported as used.
 */
function stockUseOf(name: StockName, view: ScopeView, calls: readonly CallsUse[]): QuotaCount {
  const { period, used: reported, unused } = view.stocks[name] ?? UNKNOWN;
  const recorded = new Map(view.processes.map((process) => [process.slot, process.used[name]]));
  let used = reported;
  let [held, leasedHere] = [0n, 0n];
  for (const { slot, stocks } of calls) {
    const own = stocks[name];
    if (own?.period !== period) continue;
    const inUse = maxOf(own.granted - own.used - own.available, 0n);
    held += inUse;
    leasedHere += maxOf(own.granted - own.used - inUse, 0n);
    // Without a record the coordinator counts this life as ended, and its use already.
    const before = recorded.get(slot);
    if (before !== undefined) used += maxOf(own.used - before, 0n);
  }
  const leased = maxOf(reported + unused - used - held, 0n);
  return { period, used, held, leased, leasedElsewhere: maxOf(leased - leasedHere, 0n) };
}

/** As stockUseOf, of the permits of the minute; calls hold none of them. */
function minuteUseOf(view: ScopeView, calls: readonly CallsUse[]): QuotaCount {
  const { weighing, unexpired } = view.minute;
  let used = weighing - unexpired;
  let unusedHere = 0;
  for (const { slot, minute } of calls) {
    unusedHere += minute.unused;
    const known = view.processes.find((process) => process.slot === slot)?.minute;
    if (known === undefined) continue;
    // If the process has asked since it was read, nobody knows which of its valid permits are used.
    const unknown = known.number <= minute.heardNumber ? 0 : known.unexpired;
    const usedHere = Math.max(0, known.weighing - minute.unused - unknown);
    used += usedHere - (known.weighing - known.unexpired);
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
export function useOf(view: ScopeView, calls: readonly CallsUse[] = []): AccountUse {
  const minute = minuteUseOf(view, calls);
  const uses = new Map(entriesOf(view.stocks).map(([name]) => [name, stockUseOf(name, view, calls)]));
  const of = (name: StockName): QuotaCount => uses.get(name) ?? stockUseOf(name, view, calls);
  const [day, slots, money] = [of('calls_per_day'), of('calls_in_flight'), of('balance')];
  const quotas = Array.from(uses).flatMap(([name, count]): [QuotaName, QuotaCount][] =>
    name === 'balance' ? [] : [[name, inUnitsOf(name, count)]],
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

/** Money in pico-units. */
function inUnitsOf(name: QuotaName, count: QuotaCount): QuotaCount {
  const unit = QUOTA_KINDS[name].unit === 'money' ? SPEND_UNIT : 1n;
  return {
    period: count.period,
    used: count.used * unit,
    held: count.held * unit,
    leased: count.leased * unit,
    leasedElsewhere: count.leasedElsewhere * unit,
  };
}
