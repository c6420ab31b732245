/**
 * What the status route tells of sharing, of one process and of several. Main thread, and supervisor process.
 */
import {
  EXCHANGE_BOUNDS_MS,
  REGISTRY_STATES,
  SHARING_STATES,
  type SharingReading,
} from '../telemetry/sharing-reading.js';
import type { SharingStatus } from '../telemetry/status-document.js';

const MS_PER_SECOND = 1_000;

export function sharingStatusOf(reading: SharingReading | undefined): SharingStatus | null {
  if (reading === undefined) return null;
  const { registry } = reading;
  return {
    with: reading.with,
    state: reading.state,
    reason: reading.reason ?? null,
    lost_seconds: Math.round(reading.lostMs / MS_PER_SECOND),
    exchange_ms: { bounds: EXCHANGE_BOUNDS_MS, counts: [...reading.exchanges.counts] },
    exchange_failures: reading.failures,
    leased_subjects: reading.leased,
    waiting_requests: reading.waits,
    registry: registry === undefined ? null : { state: registry.state, reason: registry.reason ?? null },
  };
}

export function addSharing(left: SharingStatus | null, right: SharingStatus | null): SharingStatus | null {
  if (left === null || right === null) return left ?? right;
  const worse = rankOf(right) > rankOf(left) ? right : left;
  return {
    with: left.with,
    state: worse.state,
    reason: worse.reason,
    lost_seconds: Math.max(left.lost_seconds, right.lost_seconds),
    exchange_ms: {
      bounds: left.exchange_ms.bounds,
      counts: left.exchange_ms.counts.map((count, at) => count + right.exchange_ms.counts[at]!),
    },
    exchange_failures: left.exchange_failures + right.exchange_failures,
    leased_subjects: left.leased_subjects + right.leased_subjects,
    waiting_requests: left.waiting_requests + right.waiting_requests,
    registry: worstRegistry(left.registry, right.registry),
  };
}

/** What goes on of a process that has ended: its counters. */
export function endedSharing(status: SharingStatus | null): SharingStatus | null {
  if (status === null) return null;
  const well = { state: SHARING_STATES[0], reason: null, lost_seconds: 0 };
  return { ...status, ...well, leased_subjects: 0, waiting_requests: 0, registry: null };
}

function rankOf({ state }: SharingStatus): number {
  return SHARING_STATES.indexOf(state);
}

function worstRegistry(
  left: SharingStatus['registry'],
  right: SharingStatus['registry'],
): SharingStatus['registry'] {
  if (left === null || right === null) return left ?? right;
  return REGISTRY_STATES.indexOf(right.state) > REGISTRY_STATES.indexOf(left.state) ? right : left;
}
