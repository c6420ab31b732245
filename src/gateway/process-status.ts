/**
 * What one gateway process says of itself for `GET /admin/v1/status`; plain, for the channel between processes. Main thread,
 * and supervisor process.
 */
import type { BreakerState, Outcome } from '../telemetry/metrics-layout.js';
import type { SharingStatus } from './sharing-status.js';

export interface StatusHistogram {
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
}

export interface UpstreamStatus {
  readonly model: string;
  readonly name: string;
  readonly priority: number;
  readonly weight: number;
  readonly calls_in_flight: number;
  /** The worst of its workers' breakers. */
  readonly breaker: BreakerState;
  readonly attempts: number;
  readonly failures: number;
}

export interface ThreadStatus {
  readonly name: string;
  readonly event_loop_delay_ms_p99: number;
  readonly heap_bytes: number;
}

/** What has become of calls. */
export interface CallsStatus {
  readonly outcomes: Readonly<Record<Outcome, number>>;
  readonly tokens: { readonly prompt: number; readonly cached: number; readonly completion: number };
  readonly cost_pico_units: number;
  readonly duration_ms: StatusHistogram;
  readonly first_token_ms: StatusHistogram;
}

/** Of a model that has had a call. */
export interface ModelStatus extends CallsStatus {
  readonly id: string;
}

export interface ProcessStatus extends CallsStatus {
  readonly version: string;
  readonly node: string;
  readonly pid: number;
  /** Its place among the gateways of its supervisor. */
  readonly process: number;
  readonly ready: boolean;
  readonly uptime_seconds: number;
  readonly listeners: number;
  readonly workers: number;
  readonly calls_in_flight: number;
  /** That there have been; all processes have the same. */
  readonly accounts: number;
  readonly limits: { readonly calls_in_flight: number; readonly accounts: number; readonly keys: number };
  /** By reason; those that there were. */
  readonly refusals: Readonly<Record<string, number>>;
  readonly overhead_ms: StatusHistogram;
  readonly models: readonly ModelStatus[];
  readonly upstreams: readonly UpstreamStatus[];
  readonly threads: readonly ThreadStatus[];
  readonly store: {
    readonly ok: boolean;
    readonly last_error: string | null;
    readonly unflushed_accounts: number;
  };
  /** Null where it has its limits for itself. */
  readonly sharing: SharingStatus | null;
}
