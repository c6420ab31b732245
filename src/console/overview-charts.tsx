/**
 * The charts of overview-page.tsx: one point for each span of the history (telemetry/history.ts), 2 seconds
 * to 5 minutes by the range shown. Browser (test/e2e/console.test.ts).
 */
import { useMemo } from 'preact/hooks';
import { chart, type ChartContent, Charts, type Series } from './chart.js';
import { milliseconds, roughMoney, short, words } from './format.js';
import { type Growth, growthOf, type Live, percentile, rangeSeconds, sharesOf, type Span } from './live.js';

/** Lines of the chart of rejections: the style sheet has five colors that can be told apart. */
const REASONS_MAX = 5;
/** Without --series-3, the red of failed calls: a high percentile is not a failure. */
const PERCENTILES: readonly (readonly [name: string, color: string, p: number])[] = [
  ['p50', '--series-5', 0.5],
  ['p95', '--series-1', 0.95],
  ['p99', '--series-4', 0.99],
];
const SECONDS_PER_HOUR = 3_600;
const WIDE = true;

export function OverviewCharts({ live, model }: { readonly live: Live; readonly model: string }) {
  const { spans, spanSeconds, range } = live;
  /** The newest snapshot of the status. The bounds of its histograms are those of the spans too. */
  const latest = live.snapshots.at(-1);
  const durationBounds = latest?.duration_ms.bounds;
  const firstTokenBounds = latest?.first_token_ms.bounds;
  const charts = useMemo((): readonly ChartContent[] => {
    // Of each span: by how much the counters grew in it.
    const growths = spans.map((span) => growthOf(span, model));
    const series = (name: string, color: string, value: (growth: Growth) => number | null): Series => ({
      name,
      color,
      values: growths.map(value),
    });
    const perSecond = (name: string, color: string, count: (growth: Growth) => number): Series =>
      series(name, color, (growth) => count(growth) / spanSeconds);
    const percentiles = (
      counts: (growth: Growth) => Growth['duration'],
      bounds: readonly number[] = [],
    ): readonly Series[] =>
      PERCENTILES.map(([name, color, p]) =>
        series(name, color, (growth) => percentile(counts(growth), bounds, p)),
      );
    return [
      chart(
        'Requests',
        'per second',
        short,
        [
          perSecond('answered', '--series-1', ({ outcomes }) => sharesOf(outcomes).answered),
          perSecond('refused', '--series-2', ({ outcomes }) => sharesOf(outcomes).rejected),
          perSecond('failed', '--series-3', ({ outcomes }) => sharesOf(outcomes).failed),
          perSecond('client left', '--series-4', ({ outcomes }) => sharesOf(outcomes).left),
        ],
        WIDE,
      ),
      chart(
        'Latency',
        'whole answer',
        milliseconds,
        percentiles(({ duration }) => duration, durationBounds),
      ),
      chart(
        'First token',
        'of streams',
        milliseconds,
        percentiles((growth) => growth.first_token, firstTokenBounds),
      ),
      chart('Tokens', 'per second', short, [
        // `tokens` are prompt, cached and completion tokens; absent if there were none.
        perSecond('prompt', '--series-1', ({ tokens }) => tokens?.[0] ?? 0),
        perSecond('cached', '--series-2', ({ tokens }) => tokens?.[1] ?? 0),
        perSecond('completion', '--series-5', ({ tokens }) => tokens?.[2] ?? 0),
      ]),
      chart('Spend', 'per hour', roughMoney, [
        // `cost` is in units of the currency, a float: for charts only.
        perSecond('spend', '--series-1', ({ cost = 0 }) => cost * SECONDS_PER_HOUR),
      ]),
      ...(model === '' ? chartsOfAllModels(spans, spanSeconds) : []),
    ];
    // The bounds are constants of the gateway: only whether they have come makes a difference.
  }, [spans, spanSeconds, model, durationBounds?.length, firstTokenBounds?.length]);
  /** Each value is drawn at the end of its span. */
  const times = useMemo(() => spans.map(({ start }) => start + spanSeconds), [spans, spanSeconds]);
  return <Charts times={times} seconds={rangeSeconds(range)} charts={charts} />;
}

/** Charts of what is counted for all models together only; they are left out if one model is selected. */
function chartsOfAllModels(spans: readonly Span[], spanSeconds: number): ChartContent[] {
  return [
    chart('Refusals', 'per second, by reason', short, rejectionsOf(spans, spanSeconds), WIDE),
    chart('In flight', 'calls, at most', short, [
      { name: 'calls', color: '--series-1', values: spans.map((span) => span.in_flight) },
    ]),
  ];
}

/** One line for each of the most frequent reasons in the range shown, rejections per second. */
function rejectionsOf(spans: readonly Span[], spanSeconds: number): Series[] {
  const totals: Record<string, number> = {};
  for (const { refusals = {} } of spans) {
    for (const [reason, count] of Object.entries(refusals)) totals[reason] = (totals[reason] ?? 0) + count;
  }
  const reasons = Object.keys(totals).sort((left, right) => totals[right]! - totals[left]!);
  if (reasons.length === 0) return [{ name: 'none', color: '--series-1', values: spans.map(() => 0) }];
  return reasons.slice(0, REASONS_MAX).map((reason, index) => ({
    name: words(reason),
    color: `--series-${index + 1}`,
    values: spans.map(({ refusals }) => (refusals?.[reason] ?? 0) / spanSeconds),
  }));
}
