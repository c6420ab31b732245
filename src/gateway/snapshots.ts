/**
 * What the gateways of one supervisor tell each other of their figures, through the supervisor: whichever has the admin
 * interface answers for all. Main thread, and supervisor process.
 */
import type { CallsUse } from '../sharing/sharing-stats.js';
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { MetricsSnapshot } from '../telemetry/metrics-snapshot.js';
import type { CallCounts, RunStatus } from '../telemetry/status-document.js';
import type { AccountReport } from '../telemetry/top-accounts.js';

/*
 * What one gateway process says of itself for `GET /admin/v1/status`; plain, for the channel between processes. Main thread,
 * and supervisor process.
 */

/** What has become of calls; with a cost that can be added. */
export interface CallsStatus extends CallCounts {
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly cost_pico_units: number;
}

/** Of a model that has had a call. */
export interface ModelStatus extends CallsStatus {
  readonly id: string;
}

export interface ProcessStatus extends CallsStatus, RunStatus {
  readonly models: readonly ModelStatus[];
}

/** By what they are asked for. */
export interface Snapshots {
  readonly metrics: MetricsSnapshot;
  readonly status: ProcessStatus;
  /** One of each process. */
  readonly accounts: readonly AccountReport[];
  /** Number of the newest change of the registry that it serves by. */
  readonly changes: number;
  /** Whether what it had settled is in the store. */
  readonly books: boolean;
  /** What its calls use of the accounts that are asked about. */
  readonly calls: readonly CallsUse[];
}

/** Asked for to have something done: a response that was on its way before the question is none. */
export const ERRANDS: ReadonlySet<SnapshotKind> = new Set<SnapshotKind>(['changes', 'books']);

export type SnapshotKind = keyof Snapshots;
export const SNAPSHOT_KINDS = [
  'metrics',
  'status',
  'accounts',
  'changes',
  'books',
  'calls',
] as const satisfies readonly SnapshotKind[];

/** Of one process; only the kind that was asked for is there. */
export type Snapshot = Partial<Snapshots>;

/** Of all processes of a supervisor. */
export interface GroupSnapshot {
  /** Of those that run; where one did not answer in time, what it said last. */
  readonly members: readonly { readonly slot: number; readonly reading: Snapshot }[];
  /** The sum of what those had counted that run no more; empty where there were none. */
  readonly ended: Snapshot;
}
