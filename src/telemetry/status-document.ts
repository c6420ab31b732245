/**
 * The JSON document of `GET /admin/v1/status`, and percentiles of it. The main thread writes the document
 * (gateway/process-status.ts for one process, gateway/group-status.ts over several). The console, the command
 * line and the history (history.ts) read it.
 *
 * Counts are sums since the start: for rates and percentiles a reader takes the difference of two responses.
 * Money is decimal text, in units of the currency.
 *
 * Must hold: no field is renamed or removed, because operators' programs read them. A whole document in
 * test/unit/gateway/group-status.test.ts does not compile then; do not change it to fit. A new field of a
 * process is added up in gateway/group-status.ts, which takes the later state of SHARING_STATES and
 * REGISTRY_STATES as the worse (the same test).
 */
import type { BreakerState } from './metrics-layout.js';

/** Counts are not cumulative. There is one count more than bounds: of values above the last bound. */
export interface HistogramView {
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
}

/** `above`: the percentile lies above the histogram's last bound, and `ms` is that bound. */
export interface Percentile {
  readonly ms: number;
  readonly above: boolean;
}

/**
 * Returns the value below which `fraction` (above 0, to 1) of all values lie, as if values were spread evenly
 * within a bucket; undefined without values, or without bounds. `counts`: by the bucket's index; an absent
 * count is 0.
 */
export function percentileOf(
  bounds: readonly number[],
  counts: Readonly<Record<number, number>>,
  fraction: number,
): Percentile | undefined {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  if (total === 0 || bounds.length === 0) return undefined;
  const rank = fraction * total;
  /** How many values lie in the buckets before `bucket`. */
  let below = 0;
  for (const [bucket, upper] of bounds.entries()) {
    const count = counts[bucket] ?? 0;
    if (count > 0 && below + count >= rank) {
      const lower = bounds[bucket - 1] ?? 0;
      return { ms: lower + (upper - lower) * ((rank - below) / count), above: false };
    }
    below += count;
  }
  return { ms: bounds.at(-1)!, above: true };
}

/** Call counts by outcome, tokens and durations. The cost is in CallStats: processes send it otherwise. */
export interface CallCounts {
  /** `ok`, `client_gone` and the error codes. */
  readonly outcomes: Readonly<Record<string, number>>;
  readonly tokens: { readonly prompt: number; readonly cached: number; readonly completion: number };
  readonly duration_ms: HistogramView;
  readonly first_token_ms: HistogramView;
}

/** The counts and the cost of all calls, or of those of one model. */
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
  /** As the label of `tollgate_upstream_failures_total`. */
  readonly kind: string;
  /** The upstream's HTTP status; null if it sent none. */
  readonly status: number | null;
  /** Names the address if no connection was made, but no secret. Null if there is no text. */
  readonly error: string | null;
  readonly request_id: string;
}

export interface UpstreamStatus {
  readonly model: string;
  /** Host and port; `#2` and so on if the model has several upstreams of one address. */
  readonly name: string;
  readonly priority: number;
  readonly weight: number;
  readonly calls_in_flight: number;
  /** The worst of its workers' breakers. */
  readonly breaker: BreakerState;
  readonly attempts: number;
  readonly failures: number;
  /** `kind` and `at` as in UpstreamError; null before the first. */
  readonly last_failure: { readonly kind: string; readonly at: number } | null;
  /** Newest first, at most five (upstream-errors.ts). The errors of a call are listed when it has ended. */
  readonly last_errors: readonly UpstreamError[];
  /** What this host uses of the upstream's limits, in the unit of each quota; empty if it has none. */
  readonly quotas: readonly { readonly quota: string; readonly limit: number; readonly used: number }[];
  /** Calls that wait for the limits. A call that may go to several upstreams is counted at one of them. */
  readonly waiting_calls: number;
}

/** A credential of upstreams that expires and that the gateway renews. Each process has its own. */
export interface CredentialStatus {
  /** The source, with the file or profile if it has one: `google:/etc/sa.json`, `aws:bills`, `entra`. */
  readonly name: string;
  /** Whether there is a valid credential; over several processes, whether all have one. */
  readonly ok: boolean;
  /** Unix seconds, the earliest of all processes; null without a credential, or if it does not say when. */
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

/** How this process shares limits. Over several processes: the worst state, and sums. */
export interface SharingStatus {
  readonly with: 'processes' | 'hosts';
  readonly state: SharingState;
  /** Null while the state is `connected`. */
  readonly reason: string | null;
  /** Since the state was last `connected`; 0 while it is. */
  readonly lost_seconds: number;
  readonly exchange_ms: HistogramView;
  readonly exchange_failures: number;
  /** How many scopes are leased or waited for. */
  readonly leased_subjects: number;
  readonly waiting_requests: number;
  /** State of the shared accounts and keys; null if hosts do not share them. */
  readonly registry: { readonly state: RegistryState; readonly reason: string | null } | null;
}

/** What runs in a gateway process. Processes send it together with CallCounts (gateway/messages.ts). */
export interface RunStatus {
  readonly version: string;
  /** The version of Node.js. */
  readonly node: string;
  readonly pid: number;
  /** The slot of the process in its process group. */
  readonly process: number;
  readonly ready: boolean;
  readonly uptime_seconds: number;
  readonly listeners: number;
  readonly workers: number;
  readonly calls_in_flight: number;
  /** Accounts ever created; all processes have the same number. */
  readonly accounts: number;
  readonly limits: { readonly calls_in_flight: number; readonly accounts: number; readonly keys: number };
  /** Calls rejected before they went to an upstream, by reason; reasons without calls are left out. */
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

/** All processes together. What only one process can have, such as `pid`, is that of the replying process. */
export interface StatusDocument extends RunStatus, CallStats {
  readonly models: readonly ModelStats[];
  readonly processes: readonly Pick<
    RunStatus,
    'process' | 'pid' | 'version' | 'ready' | 'uptime_seconds' | 'calls_in_flight'
  >[];
}
