/**
 * What operators are told of the authority and of the registry that hosts share. Main thread.
 */
import type { RegistryState, SharingReading, SharingState } from '../telemetry/metrics-reading.js';
import type { EqualShare } from './equal-share.js';
import type { LeaseKeeper } from './lease-manager.js';
import type { RegistryContactState } from './registry-contact.js';

export interface SharingParts {
  readonly keeper: LeaseKeeper['state'];
  /** Where hosts share. */
  readonly hosts:
    | { readonly calls: Pick<EqualShare, 'isAlone' | 'silentMs'>; readonly registry: RegistryContactState }
    | undefined;
  /** Of the monotonic clock. */
  readonly nowMs: number;
}

export function sharingReading({ keeper, hosts, nowMs }: SharingParts): SharingReading {
  const { lost, exchanges, losses, subjects, waits } = keeper;
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
