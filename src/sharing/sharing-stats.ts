/**
 * What operators are told of the coordinator and of the registry that hosts share. Main thread.
 */
import type { RegistryState, SharingSnapshot, SharingState } from '../telemetry/metrics-snapshot.js';
import type { EqualShare } from './equal-share.js';
import type { LeaseManager } from './lease-manager.js';
import type { RegistryContactState } from './registry-contact.js';

export interface SharingContext {
  readonly manager: LeaseManager['state'];
  /** Where hosts share. */
  readonly hosts:
    | { readonly calls: Pick<EqualShare, 'isAlone' | 'silentMs'>; readonly registry: RegistryContactState }
    | undefined;
  /** Of the monotonic clock. */
  readonly nowMs: number;
}

export function sharingSnapshot({ manager: keeper, hosts, nowMs }: SharingContext): SharingSnapshot {
  const { lost, exchanges, losses, scopes: subjects, waits } = keeper;
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
    leased: subjects,
    waits,
    registry: hosts && registryOf(hosts.registry),
  };
}

function registryOf(state: RegistryContactState): { state: RegistryState; reason: string | undefined } {
  return { state: state.kind, reason: state.kind === 'following' ? undefined : state.reason };
}
