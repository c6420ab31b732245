/**
 * What operators are shown of shared limits: the status of the coordinator and of the registry, and what
 * calls use of an account beside what processes were granted of it in advance. Status page, metrics and the
 * admin interface read it. Pure; main thread.
 */
import { QUOTA_KINDS, type QuotaName } from '../core/quotas.js';
import { asPicoUnits } from '../core/units.js';
import type { AccountUse, QuotaCount, QuotaCounts } from '../registry/account-statement.js';
import type { RegistryState, SharingSnapshot, SharingState } from '../telemetry/metrics-snapshot.js';
import {
  entriesOf,
  type ScopeView,
  SPEND_UNIT,
  type StockName,
  type Stocks,
  type StockView,
} from './coordinator.js';
import type { EqualShare } from './equal-share.js';
import type { LeaseManager } from './lease-manager.js';
import type { RegistryContactState } from './registry-contact.js';

export interface SharingContext {
  readonly manager: LeaseManager['state'];
  /** Undefined if only processes of this host share. */
  readonly hosts:
    | { readonly calls: Pick<EqualShare, 'isAlone' | 'silentMs'>; readonly registry: RegistryContactState }
    | undefined;
  /** Of the monotonic clock. */
  readonly nowMs: number;
}

export function sharingSnapshot({ manager, hosts, nowMs }: SharingContext): SharingSnapshot {
  const { lost, exchanges, losses, scopes, waits } = manager;
  const isAlone = hosts?.calls.isAlone === true;
  const unleased = lost?.reason === 'quarantine' ? 'quarantine' : 'lost';
  const state: SharingState = isAlone ? 'alone' : lost === undefined ? 'connected' : unleased;
  return {
    with: hosts === undefined ? 'processes' : 'hosts',
    state,
    reason: lost?.message ?? (isAlone ? 'the authority has been silent' : undefined),
    lostMs: isAlone ? hosts.calls.silentMs : lost === undefined ? 0 : nowMs - lost.sinceMs,
    exchanges,
    failures: losses,
    leased: scopes,
    waits,
    registry: hosts && registryOf(hosts.registry),
  };
}

function registryOf(state: RegistryContactState): { state: RegistryState; reason: string | undefined } {
  return { state: state.kind, reason: state.kind === 'following' ? undefined : state.reason };
}

/** What the calls of one process use of one scope. */
export interface CallsUse {
  readonly scope: string;
  /** Permits that the coordinator counts as used, and no request has used. */
  readonly minuteUnused: number;
  readonly stocks: Stocks<{
    readonly period: number;
    /** By calls in flight. Of the balance also what was charged and is not in the store yet. */
    readonly held: bigint;
    /** What the coordinator counts in the period, and no call uses. */
    readonly unused: bigint;
  }>;
}

/** By the scope's id. */
export function byScope(uses: readonly CallsUse[]): Map<string, CallsUse[]> {
  const found = new Map<string, CallsUse[]>();
  for (const use of uses) found.set(use.scope, [...(found.get(use.scope) ?? []), use]);
  return found;
}

/** What is used of a stock by all: by calls of this host that hold it, and otherwise. */
export interface StockUse {
  readonly period: number;
  /** Of other hosts it includes what they were granted and have not used, because only they know. */
  readonly used: bigint;
  readonly held: bigint;
  /** Granted to this host, and no call uses it. */
  readonly leased: bigint;
}

const UNKNOWN: StockView = { period: 0, used: 0n, unused: 0n };

/**
 * Parts what the coordinator counts of a stock into what calls use and what is leased. `calls` is what the
 * processes of this host know.
 */
export function stockUseOf(name: StockName, view: ScopeView, calls: readonly CallsUse[] = []): StockUse {
  const { period, used, unused } = view.stocks[name] ?? UNKNOWN;
  let [held, leased] = [0n, 0n];
  for (const { stocks } of calls) {
    const own = stocks[name];
    if (own?.period !== period) continue;
    held += own.held;
    leased += own.unused;
  }
  const all = used + unused;
  if (leased > all) leased = all;
  const others = all - leased - held;
  return { period, used: others > 0n ? others : 0n, held, leased };
}

/** By quota; see `AccountUse.quotas`. */
function quotasOf(view: ScopeView, calls: readonly CallsUse[], minuteUsed: number): QuotaCounts {
  const counts = entriesOf(view.stocks).flatMap(([name]): [QuotaName, QuotaCount][] => {
    if (name === 'balance') return [];
    const { period, used, held } = stockUseOf(name, view, calls);
    const unit = QUOTA_KINDS[name].unit === 'money' ? SPEND_UNIT : 1n;
    return [[name, { period, used: used * unit, held: held * unit }]];
  });
  return new Map([['requests_per_minute', { period: 0, used: BigInt(minuteUsed), held: 0n }], ...counts]);
}

/** For an account: what other hosts' calls use of slots and money stays leased. */
export function useOf(view: ScopeView, calls: readonly CallsUse[] = []): AccountUse {
  const minuteUnused = Math.min(
    view.minuteUsed,
    calls.reduce((all, use) => all + use.minuteUnused, 0),
  );
  const day = stockUseOf('calls_per_day', view, calls);
  const slots = stockUseOf('calls_in_flight', view, calls);
  const money = stockUseOf('balance', view, calls);
  const minuteUsed = view.minuteUsed - minuteUnused;
  return {
    held: asPicoUnits(money.held),
    spent: view.spent,
    minuteUsed,
    dayNumber: day.period,
    dayCalls: Number(day.used + day.held),
    callsInFlight: Number(slots.held),
    leased: {
      minute: minuteUnused,
      dayCalls: Number(day.leased),
      callsInFlight: Number(slots.leased + slots.used),
      money: asPicoUnits(money.leased + money.used),
    },
    quotas: quotasOf(view, calls, minuteUsed),
  };
}
