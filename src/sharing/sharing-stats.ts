/**
 * What operators are shown of shared limits: the status of the coordinator and of the registry, and what
 * calls use of an account beside what processes were granted of it in advance. Status page, metrics and the
 * admin interface read it. Pure; main thread.
 */
import { asPicoUnits, type PicoUnits } from '../core/units.js';
import type { AccountUse } from '../registry/account-statement.js';
import type { RegistryState, SharingSnapshot, SharingState } from '../telemetry/metrics-snapshot.js';
import type { ScopeView } from './coordinator.js';
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

/** What the calls of one process use of one account. */
export interface CallsUse {
  readonly account: string;
  readonly callsInFlight: number;
  /** Held by calls in flight, or charged and not in the store yet. */
  readonly held: PicoUnits;
  /** Permits that the coordinator counts as used, and no request has used. */
  readonly minuteUnused: number;
  readonly dayNumber: number;
  /** Calls of that day that the coordinator counts as used, and no call has used. */
  readonly dayUnused: number;
}

/** By the account's id. */
export function byAccount(uses: readonly CallsUse[]): Map<string, CallsUse[]> {
  const found = new Map<string, CallsUse[]>();
  for (const use of uses) found.set(use.account, [...(found.get(use.account) ?? []), use]);
  return found;
}

/**
 * Parts `view`, in which the coordinator counts all that it granted as used, into what calls use and what is
 * leased. `calls` is what the processes of this host know. What other hosts' calls use stays leased, and what
 * other hosts have not used of minute and day stays used, because only they know.
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
