/**
 * The document of `GET /admin/v1/status`, as the gateway writes it and its readers take it: JSON, types alone. Any thread, and
 * the browser.
 *
 * Figures are sums since the start: who wants rates or percentiles takes the difference of two responses. Money is decimal text.
 */
import type { BreakerState } from './metrics-layout.js';
import type { RegistryState, SharingState } from './metrics-snapshot.js';

/** One more count than bounds, for what lies above them; each counts what is in its bucket alone. */
export interface HistogramView {
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
}

/** What has become of calls, without their cost. */
export interface CallCounts {
  /** `ok`, `client_gone` and the error codes. */
  readonly outcomes: Readonly<Record<string, number>>;
  readonly tokens: { readonly prompt: number; readonly cached: number; readonly completion: number };
  readonly duration_ms: HistogramView;
  readonly first_token_ms: HistogramView;
}

/** Of all calls, or of one model's. */
export interface CallStats extends CallCounts {
  readonly cost: string;
}

/** Of a model that has had a call. */
export interface ModelStats extends CallStats {
  readonly id: string;
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
  /** `kind` as in the metric's label, `at` in Unix seconds; null before the first. */
  readonly last_failure: { readonly kind: string; readonly at: number } | null;
}

export interface ThreadStatus {
  readonly name: string;
  readonly event_loop_delay_ms_p99: number;
  readonly heap_bytes: number;
}

export interface StoreStatus {
  readonly ok: boolean;
  readonly last_error: string | null;
  readonly unflushed_accounts: number;
}

/** Of several processes: the worst state, and sums. */
export interface SharingStatus {
  readonly with: 'processes' | 'hosts';
  readonly state: SharingState;
  readonly reason: string | null;
  readonly lost_seconds: number;
  readonly exchange_ms: HistogramView;
  readonly exchange_failures: number;
  readonly leased_subjects: number;
  readonly waiting_requests: number;
  /** Of accounts and keys; null where one host has them for itself. */
  readonly registry: { readonly state: RegistryState; readonly reason: string | null } | null;
}

/** What a gateway process is and does, apart from its calls. */
export interface RunStatus {
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
  readonly overhead_ms: HistogramView;
  readonly upstreams: readonly UpstreamStatus[];
  readonly threads: readonly ThreadStatus[];
  readonly store: StoreStatus;
  /** Null where it has its limits for itself. */
  readonly sharing: SharingStatus | null;
}

/** Of all processes; `process`, `pid` and the like are those of the one that responses. */
export interface StatusDocument extends RunStatus, CallStats {
  readonly models: readonly ModelStats[];
  readonly processes: readonly Pick<
    RunStatus,
    'process' | 'pid' | 'version' | 'ready' | 'uptime_seconds' | 'calls_in_flight'
  >[];
}
