/**
 * The JSON document of `GET /admin/v1/status`: its types, and its states of sharing from the best to the
 * worst. The gateway writes it (stats.ts, group-status.ts); the console, the command line and the history
 * read it.
 *
 * Numbers are sums since the start: for rates and percentiles a reader takes the difference of two responses.
 * Money is decimal text.
 *
 * Must hold: no field is renamed or removed, because operators' programs read them (no test), and a new field
 * of a process is added up in gateway/group-status.ts (test/unit/gateway/group-status.test.ts).
 */
import type { BreakerState } from './metrics-layout.js';

/** Counts are not cumulative. There is one more than bounds, for values above the last. */
export interface HistogramView {
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
}

/** Call counts by outcome, tokens and durations, without the cost. */
export interface CallCounts {
  /** `ok`, `client_gone` and the error codes. */
  readonly outcomes: Readonly<Record<string, number>>;
  readonly tokens: { readonly prompt: number; readonly cached: number; readonly completion: number };
  readonly duration_ms: HistogramView;
  readonly first_token_ms: HistogramView;
}

/** The same with the cost, for all calls or those of one model. */
export interface CallStats extends CallCounts {
  readonly cost: string;
}

/** Stats of a model that has had a call. */
interface ModelStats extends CallStats {
  readonly id: string;
}

/** An attempt that failed. */
export interface UpstreamError {
  /** Unix seconds. */
  readonly at: number;
  /** As in the metric's label. */
  readonly kind: string;
  /** The upstream's HTTP status; null if it sent none. */
  readonly status: number | null;
  /** Without secrets; of a connection that failed, with the address. Null if there is no text. */
  readonly error: string | null;
  readonly request_id: string;
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
  /** Newest first, at most five (upstream-errors.ts). Known from ended calls. */
  readonly last_errors: readonly UpstreamError[];
  /** What this host uses of its limits; empty if it has none. */
  readonly quotas: readonly { readonly quota: string; readonly limit: number; readonly used: number }[];
  /** Calls that wait for its limits; a call that may go to several upstreams is counted at one. */
  readonly waiting_calls: number;
}

/** A credential of upstreams that expires and that the gateway renews. Each process has its own. */
export interface CredentialStatus {
  /**
   * The source, with the file or profile if it has one: `google:/etc/sa.json`, `aws:bills`, `entra`.
   */
  readonly name: string;
  /** Whether there is a valid one; over several processes, whether all have one. */
  readonly ok: boolean;
  /** Unix seconds, the earliest; null if there is none, or if it is not known. */
  readonly expires_at: number | null;
  readonly renewals: number;
  readonly failures: number;
  /** Why the last renewal failed; null after a success. */
  readonly last_error: string | null;
}

export interface ThreadStatus {
  readonly name: string;
  readonly event_loop_delay_ms_p99: number;
  readonly heap_bytes: number;
}

interface StoreStatus {
  readonly ok: boolean;
  readonly last_error: string | null;
  readonly unflushed_accounts: number;
}

/**
 * State of a gateway's contact with the coordinator, from the best to the worst. `alone`: this process uses
 * its equal share. `quarantine`: the coordinator has lost its data and grants nothing until its former leases
 * have ended. `lost`: the coordinator cannot be reached.
 */
export const SHARING_STATES = ['connected', 'alone', 'quarantine', 'lost'] as const;
export type SharingState = (typeof SHARING_STATES)[number];

/**
 * From the best to the worst. `lost`: the server cannot be reached, so nothing can be changed. `diverged`: an
 * operator must decide.
 */
export const REGISTRY_STATES = ['following', 'lost', 'diverged'] as const;
export type RegistryState = (typeof REGISTRY_STATES)[number];

/** Over several processes: the worst state, and sums. */
export interface SharingStatus {
  readonly with: 'processes' | 'hosts';
  readonly state: SharingState;
  readonly reason: string | null;
  readonly lost_seconds: number;
  readonly exchange_ms: HistogramView;
  readonly exchange_failures: number;
  readonly leased_subjects: number;
  readonly waiting_requests: number;
  /** State of the shared accounts and keys; null if hosts do not share them. */
  readonly registry: { readonly state: RegistryState; readonly reason: string | null } | null;
}

/** What runs in a gateway process, without its call counts. */
export interface RunStatus {
  readonly version: string;
  readonly node: string;
  readonly pid: number;
  /** Its slot among the gateways of its supervisor. */
  readonly process: number;
  readonly ready: boolean;
  readonly uptime_seconds: number;
  readonly listeners: number;
  readonly workers: number;
  readonly calls_in_flight: number;
  /** Accounts ever created; all processes have the same number. */
  readonly accounts: number;
  readonly limits: { readonly calls_in_flight: number; readonly accounts: number; readonly keys: number };
  /** Rejected calls by reason; reasons without calls are left out. */
  readonly refusals: Readonly<Record<string, number>>;
  readonly overhead_ms: HistogramView;
  readonly upstreams: readonly UpstreamStatus[];
  /** Empty if no upstream has one. */
  readonly credentials: readonly CredentialStatus[];
  readonly threads: readonly ThreadStatus[];
  readonly store: StoreStatus;
  /** Null if limits are not shared. */
  readonly sharing: SharingStatus | null;
}

/** All processes together; `process`, `pid` and the like are of the process that replies. */
export interface StatusDocument extends RunStatus, CallStats {
  readonly models: readonly ModelStats[];
  readonly processes: readonly Pick<
    RunStatus,
    'process' | 'pid' | 'version' | 'ready' | 'uptime_seconds' | 'calls_in_flight'
  >[];
}
