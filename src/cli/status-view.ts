/**
 * The document of `GET /admin/v1/status` as the screen reads it. Every field may be missing, for a gateway of another
 * version answers too.
 */

/** `counts` has one entry more than `bounds`, for what lies above them; each counts what is in its bucket alone. */
export interface HistogramView {
  readonly bounds: readonly number[];
  readonly counts: readonly number[];
}

export interface UpstreamStatus {
  readonly model: string;
  readonly name: string;
  readonly priority: number;
  readonly weight: number;
  readonly calls_in_flight: number;
  readonly breaker: string;
  readonly attempts: number;
  readonly failures: number;
}

export interface ThreadStatus {
  readonly name: string;
  readonly event_loop_delay_ms_p99: number;
  readonly heap_bytes: number;
}

/** Counters are sums since the start. Money is a decimal string. */
export interface StatusView {
  readonly version?: string;
  readonly node?: string;
  readonly pid?: number;
  readonly ready?: boolean;
  readonly uptime_seconds?: number;
  readonly listeners?: number;
  readonly workers?: number;
  readonly calls_in_flight?: number;
  readonly limits?: { readonly calls_in_flight: number };
  /** `ok`, `client_gone` and the error codes. */
  readonly outcomes?: Readonly<Record<string, number>>;
  readonly tokens?: { readonly prompt?: number; readonly cached?: number; readonly completion?: number };
  readonly cost?: string;
  readonly duration_ms?: HistogramView;
  readonly first_token_ms?: HistogramView;
  readonly overhead_ms?: HistogramView;
  readonly upstreams?: readonly UpstreamStatus[];
  readonly threads?: readonly ThreadStatus[];
  readonly store?: {
    readonly ok: boolean;
    readonly last_error: string | null;
    readonly unflushed_accounts: number;
  };
  /** Null where the gateway has its limits for itself. */
  readonly sharing?: {
    readonly state: string;
    readonly reason: string | null;
    readonly lost_seconds: number;
    readonly registry: { readonly state: string; readonly reason: string | null } | null;
  } | null;
}

/** An answer and when it came. */
export interface StatusSample {
  readonly status: StatusView;
  /** Of a monotonic clock. */
  readonly atMs: number;
}
