/** Rates and percentiles from two responses of the status route. Pure. */
import type { HistogramView, SharingStatus, StatusDocument } from '../telemetry/status-document.js';

/*
 * The document of `GET /admin/v1/status` as the screen reads it. Every field may be missing, for a gateway of another
 * version answers too.
 */

export interface StatusView extends Partial<Omit<StatusDocument, 'limits' | 'tokens' | 'sharing'>> {
  readonly limits?: Pick<StatusDocument['limits'], 'calls_in_flight'>;
  readonly tokens?: Partial<StatusDocument['tokens']>;
  readonly sharing?: Pick<SharingStatus, 'state' | 'reason' | 'lost_seconds' | 'registry'> | null;
}

/** A response and when it came. */
export interface StatusSample {
  readonly status: StatusView;
  /** Of a monotonic clock. */
  readonly atMs: number;
}

/** Undefined is what cannot be known: a field that is missing, or a rate before there are two responses. */
export interface Rate {
  readonly perSecond: number | undefined;
  readonly total: number | undefined;
}

/** Milliseconds. `above` tells that it lies beyond the histogram's last bound, which is given then. */
export interface Percentile {
  readonly ms: number;
  readonly above: boolean;
}

export const PERCENTS = [50, 90, 99] as const;

/** In the order of PERCENTS; undefined where nothing was measured. */
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

/** `former` is undefined at the first response; one of another gateway process counts as none. */
export function statsOf(former: StatusSample | undefined, latest: StatusSample): StatusStats {
  const { status } = latest;
  const before = former !== undefined && isOfSameStart(former.status, status) ? former : undefined;
  const seconds = before === undefined ? 0 : (latest.atMs - before.atMs) / 1_000;
  const rate = (read: (view: StatusView) => number | undefined): Rate => {
    const total = read(status);
    const past = before === undefined ? undefined : read(before.status);
    const known = total !== undefined && past !== undefined && seconds > 0;
    return { total, perSecond: known ? Math.max(total - past, 0) / seconds : undefined };
  };
  const percentiles = (read: (view: StatusView) => HistogramView | undefined): Percentiles =>
    percentilesOf(before === undefined ? undefined : read(before.status), read(status));
  return {
    calls: rate(({ outcomes }) => outcomes && sumOf(Object.values(outcomes))),
    prompt: rate(({ tokens }) => tokens?.prompt),
    cached: rate(({ tokens }) => tokens?.cached),
    completion: rate(({ tokens }) => tokens?.completion),
    cost: rate(({ cost }) => (cost === undefined ? undefined : Number(cost))),
    duration: percentiles((view) => view.duration_ms),
    firstToken: percentiles((view) => view.first_token_ms),
    overhead: percentiles((view) => view.overhead_ms),
    outcomes: Object.entries(status.outcomes ?? {})
      .filter(([, count]) => count > 0)
      .sort(([, left], [, right]) => right - left)
      .map(([code]) => ({ code, ...rate(({ outcomes }) => outcomes?.[code]) })),
  };
}

/** Counters of a gateway that was restarted begin anew. */
function isOfSameStart(former: StatusView, latest: StatusView): boolean {
  return former.pid === latest.pid && (former.uptime_seconds ?? 0) <= (latest.uptime_seconds ?? 0);
}

/** Of what came between two readings; of everything so far where there is but one. */
function percentilesOf(former: HistogramView | undefined, latest: HistogramView | undefined): Percentiles {
  if (latest === undefined) return PERCENTS.map(() => undefined);
  const counts = latest.counts.map((count, bucket) => Math.max(count - (former?.counts[bucket] ?? 0), 0));
  const total = sumOf(counts);
  return PERCENTS.map((percent) =>
    total === 0 ? undefined : percentileOf(latest.bounds, counts, (total * percent) / 100),
  );
}

/** Where the observation of this rank lies in its bucket, taken as evenly filled. */
function percentileOf(bounds: readonly number[], counts: readonly number[], rank: number): Percentile {
  let below = 0;
  for (const [bucket, upper] of bounds.entries()) {
    const count = counts[bucket] ?? 0;
    if (count > 0 && below + count >= rank) {
      const lower = bounds[bucket - 1] ?? 0;
      return { ms: lower + (upper - lower) * ((rank - below) / count), above: false };
    }
    below += count;
  }
  return { ms: bounds.at(-1) ?? 0, above: true };
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}
