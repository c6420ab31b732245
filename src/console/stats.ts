/**
 * From sums and spans to what is shown: rates, shares, percentiles. Pure; browser.
 */
import type { Picture } from './live.js';
import type { CallFigures, Growth, Histogram, Span, Status } from './views.js';

/** Outcomes that are the gateway's or an upstream's fault; the others refuse what a caller did. */
const FAILURES: ReadonlySet<string> = new Set(['provider_unavailable', 'internal_error', 'overloaded']);

export function sumOf(counts: Readonly<Record<string, number>> = {}): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** Moments, `stepSeconds` apart, of which `last` is the newest. */
export function timesUntil(last: number, stepSeconds: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => last - (count - 1 - index) * stepSeconds);
}

export interface Shares {
  readonly answered: number;
  readonly refused: number;
  readonly failed: number;
  readonly left: number;
}

export function sharesOf(outcomes: Readonly<Record<string, number>> = {}): Shares {
  const shares = { answered: 0, refused: 0, failed: 0, left: 0 };
  for (const [outcome, count] of Object.entries(outcomes)) {
    if (outcome === 'ok') shares.answered += count;
    else if (outcome === 'client_gone') shares.left += count;
    else if (FAILURES.has(outcome)) shares.failed += count;
    else shares.refused += count;
  }
  return shares;
}

/** Of a sparse histogram: the value below which the share `p` of all lies, by a straight line within its bucket. */
export function percentile(
  counts: Readonly<Record<string, number>> | undefined,
  bounds: readonly number[],
  p: number,
): number | null {
  const total = sumOf(counts);
  if (counts === undefined || total === 0 || bounds.length === 0) return null;
  let below = 0;
  for (let bucket = 0; bucket <= bounds.length; bucket++) {
    const count = counts[bucket] ?? 0;
    if (count > 0 && below + count >= p * total) {
      const low = bounds[bucket - 1] ?? 0;
      const high = bounds[bucket] ?? low;
      return low + ((p * total - below) / count) * (high - low);
    }
    below += count;
  }
  return null;
}

/** A span's figures of all models, or of one. */
export function growthOf(span: Span, model: string): Growth {
  return model === '' ? span : (span.models?.[model] ?? {});
}

/** What came between the first and the last picture, and in how many seconds. */
export interface Moment extends Growth {
  readonly seconds: number;
  readonly refusals: Readonly<Record<string, number>>;
}

export function momentOf(pictures: readonly Picture[], model: string): Moment | undefined {
  const first = pictures[0];
  const last = pictures.at(-1);
  if (first === undefined || last === undefined || last.atSeconds <= first.atSeconds) return undefined;
  const seconds = last.atSeconds - first.atSeconds;
  const before = statsOf(first, model);
  const after = statsOf(last, model);
  if (after === undefined) return { seconds, refusals: {} };
  return {
    seconds,
    outcomes: difference(before?.outcomes, after.outcomes),
    tokens: [
      after.tokens.prompt - (before?.tokens.prompt ?? 0),
      after.tokens.cached - (before?.tokens.cached ?? 0),
      after.tokens.completion - (before?.tokens.completion ?? 0),
    ],
    cost: Number(after.cost) - Number(before?.cost ?? 0),
    duration: histogramDifference(before?.duration_ms, after.duration_ms),
    first_token: histogramDifference(before?.first_token_ms, after.first_token_ms),
    refusals: difference(first.refusals, last.refusals),
  };
}

function statsOf(status: Status, model: string): CallFigures | undefined {
  return model === '' ? status : status.models.find(({ id }) => id === model);
}

function difference(
  before: Readonly<Record<string, number>> = {},
  after: Readonly<Record<string, number>>,
): Record<string, number> {
  return Object.fromEntries(
    Object.entries(after).map(([name, count]) => [name, count - (before[name] ?? 0)]),
  );
}

function histogramDifference(before: Histogram | undefined, after: Histogram): Record<string, number> {
  return difference(
    Object.fromEntries(before?.counts.entries() ?? []),
    Object.fromEntries(after.counts.entries()),
  );
}
