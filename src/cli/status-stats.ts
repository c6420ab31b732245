/**
 * The document of `GET /admin/v1/status` as another version of the gateway may send it, and what two such
 * responses say: totals, rates and percentiles between them. status-command.ts calls `statsOf`, and
 * status-text.ts makes the text. Process of a command. Pure.
 *
 * Must hold: each field that StatusView makes optional may be missing, because the gateway may have another
 * version; counters that a restart has set to 0 give no rates (test/unit/cli/status-stats.test.ts).
 */
import type { GroupView } from '../admin/views.js';
import {
  type CredentialStatus,
  type HistogramView,
  type Percentile,
  percentileOf,
  type SharingStatus,
  type StatusDocument,
  type ThreadStatus,
  type UpstreamStatus,
} from '../telemetry/status-document.js';

/** Fields of the document that are objects or lists, whose own fields may be missing too. */
type Nested = 'limits' | 'tokens' | 'sharing' | 'store' | 'upstreams' | 'credentials' | 'threads';

/** The status document of any version. A histogram, or the use of a quota, is complete or missing. */
export interface StatusView extends Partial<Omit<StatusDocument, Nested>> {
  readonly groups?: readonly Partial<GroupView>[];
  readonly limits?: Partial<Pick<StatusDocument['limits'], 'calls_in_flight'>>;
  readonly tokens?: Partial<StatusDocument['tokens']>;
  readonly sharing?: Partial<
    Omit<SharingStatus, 'registry'> & { readonly registry: Partial<SharingStatus['registry']> }
  > | null;
  readonly store?: Partial<StatusDocument['store']>;
  readonly upstreams?: readonly UpstreamView[];
  readonly credentials?: readonly Partial<CredentialStatus>[];
  readonly threads?: readonly Partial<ThreadStatus>[];
}

export type UpstreamView = Partial<UpstreamStatus>;

export interface StatusSample {
  readonly status: StatusView;
  /** When the response came, on a monotonic clock. */
  readonly atMs: number;
}

/** `total` is undefined if the document lacks the field, `perSecond` also if there is no former sample. */
export interface Rate {
  readonly perSecond: number | undefined;
  readonly total: number | undefined;
}

export const PERCENTS = [50, 90, 99] as const;

/** In the order of PERCENTS. An entry is undefined if nothing was measured. */
export type Percentiles = readonly (Percentile | undefined)[];

export interface StatusStats {
  readonly calls: Rate;
  readonly prompt: Rate;
  readonly cached: Rate;
  readonly completion: Rate;
  readonly cost: Rate;
  readonly duration: Percentiles;
  readonly firstToken: Percentiles;
  readonly overhead: Percentiles;
  /** Outcomes that have occurred, the most frequent first. */
  readonly outcomes: readonly (Rate & { readonly code: string })[];
}

/**
 * Compares two samples. Without `former`, or if it is of another process, there are no rates, and percentiles
 * are those since the start.
 */
export function statsOf(former: StatusSample | undefined, latest: StatusSample): StatusStats {
  const { status } = latest;
  const comparable = former !== undefined && isOfSameStart(former.status, status) ? former : undefined;
  const seconds = comparable === undefined ? 0 : (latest.atMs - comparable.atMs) / 1_000;
  const rate = (read: (view: StatusView) => number | undefined): Rate => {
    const total = read(status);
    const formerTotal = comparable === undefined ? undefined : read(comparable.status);
    const hasBoth = total !== undefined && formerTotal !== undefined && seconds > 0;
    return { total, perSecond: hasBoth ? Math.max(total - formerTotal, 0) / seconds : undefined };
  };
  const percentiles = (read: (view: StatusView) => HistogramView | undefined): Percentiles =>
    percentilesOf(comparable === undefined ? undefined : read(comparable.status), read(status));
  return {
    calls: rate(({ outcomes }) => outcomes && Object.values(outcomes).reduce((sum, count) => sum + count, 0)),
    prompt: rate(({ tokens }) => tokens?.prompt),
    cached: rate(({ tokens }) => tokens?.cached),
    completion: rate(({ tokens }) => tokens?.completion),
    cost: rate(({ cost }) => (cost === undefined ? undefined : Number(cost))),
    duration: percentiles((view) => view.duration_ms),
    firstToken: percentiles((view) => view.first_token_ms),
    overhead: percentiles((view) => view.overhead_ms),
    outcomes: Object.entries(status.outcomes ?? {})
      .filter(([, count]) => count > 0)
      .sort(([, count], [, otherCount]) => otherCount - count)
      .map(([code]) => ({ code, ...rate(({ outcomes }) => outcomes?.[code]) })),
  };
}

/** False if the gateway was restarted: its counters began at 0, and cannot be compared with earlier ones. */
function isOfSameStart(former: StatusView, latest: StatusView): boolean {
  return former.pid === latest.pid && (former.uptime_seconds ?? 0) <= (latest.uptime_seconds ?? 0);
}

/** Percentiles of what was measured between two samples, or since the start if `former` is undefined. */
function percentilesOf(former: HistogramView | undefined, latest: HistogramView | undefined): Percentiles {
  if (latest === undefined) return PERCENTS.map(() => undefined);
  const counts = latest.counts.map((count, bucket) => Math.max(count - (former?.counts[bucket] ?? 0), 0));
  return PERCENTS.map((percent) => percentileOf(latest.bounds, counts, percent / 100));
}
