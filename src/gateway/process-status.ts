/**
 * What one gateway process says of itself for `GET /admin/v1/status`; plain, for the channel between processes. Main thread,
 * and supervisor process.
 */
import type { Outcome } from '../telemetry/metrics-layout.js';
import type { CallCounts, RunStatus } from '../telemetry/status-document.js';

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
