/**
 * The charts of the overview, from the spans of the history. Browser.
 */
import { useMemo } from 'preact/hooks';
import { Chart, type Series } from './chart.js';
import { growthOf, percentile, sharesOf, sumOf } from './stats.js';
import { milliseconds, roughMoney, short, words } from './format.js';
import type { Live } from './live.js';
import { RANGE_SECONDS, type Growth, type Span } from './views.js';

/** Lines of one chart that can be told apart. */
const REASONS_MAX = 5;
const COLORS = ['--series-1', '--series-2', '--series-3', '--series-4', '--series-5'] as const;
/** Red is for what failed. */
const PERCENTILE_COLORS = ['--series-5', '--series-1', '--series-4'] as const;
const SECONDS_PER_HOUR = 3_600;

export function OverviewCharts({ live, model }: { readonly live: Live; readonly model: string }) {
  const { spans, spanSeconds, range } = live;
  const status = live.pictures.at(-1);
  const durationBounds = status?.duration_ms.bounds;
  const firstTokenBounds = status?.first_token_ms.bounds;
  const drawn = useMemo(() => {
    const growths = spans.map((span) => growthOf(span, model));
    const line = (
      name: string,
      color: string,
      value: (growth: Growth, index: number) => number | null,
    ): Series => ({
      name,
      color,
      values: growths.map(value),
    });
    const perSecond = (name: string, color: string, count: (growth: Growth) => number): Series =>
      line(name, color, (growth) => count(growth) / spanSeconds);
    const percentiles = (
      counts: (growth: Growth) => Growth['duration'],
      bounds: readonly number[] = [],
    ): readonly Series[] =>
      (
        [
          ['p50', 0.5],
          ['p95', 0.95],
          ['p99', 0.99],
        ] as const
      ).map(([name, p], index) =>
        line(name, PERCENTILE_COLORS[index]!, (growth) => percentile(counts(growth), bounds, p)),
      );
    return {
      times: spans.map(({ start }) => start + spanSeconds),
      requests: [
        perSecond('answered', '--series-1', ({ outcomes }) => sharesOf(outcomes).answered),
        perSecond('refused', '--series-2', ({ outcomes }) => sharesOf(outcomes).refused),
        perSecond('failed', '--series-3', ({ outcomes }) => sharesOf(outcomes).failed),
        perSecond('client left', '--series-4', ({ outcomes }) => sharesOf(outcomes).left),
      ],
      refusals: rejectionsOf(spans, spanSeconds),
      inFlight: [{ name: 'calls', color: '--series-1', values: spans.map((span) => span.in_flight) }],
      tokens: [
        perSecond('prompt', '--series-1', ({ tokens }) => tokens?.[0] ?? 0),
        perSecond('cached', '--series-2', ({ tokens }) => tokens?.[1] ?? 0),
        perSecond('completion', '--series-5', ({ tokens }) => tokens?.[2] ?? 0),
      ],
      spend: [line('spend', '--series-1', ({ cost = 0 }) => (cost / spanSeconds) * SECONDS_PER_HOUR)],
      latency: percentiles(({ duration }) => duration, durationBounds),
      firstToken: percentiles((growth) => growth.first_token, firstTokenBounds),
    };
  }, [spans, spanSeconds, model, durationBounds?.length, firstTokenBounds?.length]);

  const common = { times: drawn.times, seconds: RANGE_SECONDS[range] };
  return (
    <div class="charts">
      <Chart {...common} wide title="Requests" unit="per second" series={drawn.requests} format={short} />
      <Chart {...common} title="Latency" unit="whole answer" series={drawn.latency} format={milliseconds} />
      <Chart
        {...common}
        title="First token"
        unit="of streams"
        series={drawn.firstToken}
        format={milliseconds}
      />
      <Chart {...common} title="Tokens" unit="per second" series={drawn.tokens} format={short} />
      <Chart {...common} title="Spend" unit="per hour" series={drawn.spend} format={roughMoney} />
      {model === '' ? (
        <>
          <Chart
            {...common}
            wide
            title="Refusals"
            unit="per second, by reason"
            series={drawn.refusals}
            format={short}
          />
          <Chart {...common} title="In flight" unit="calls, at most" series={drawn.inFlight} format={short} />
        </>
      ) : null}
    </div>
  );
}

/** The most frequent reasons of the time shown. */
function rejectionsOf(spans: readonly Span[], spanSeconds: number): Series[] {
  const totals: Record<string, number> = {};
  for (const { refusals = {} } of spans) {
    for (const [reason, count] of Object.entries(refusals)) totals[reason] = (totals[reason] ?? 0) + count;
  }
  const reasons = Object.keys(totals).sort((left, right) => totals[right]! - totals[left]!);
  if (reasons.length === 0) {
    return [{ name: 'none', color: '--series-1', values: spans.map(({ refusals }) => sumOf(refusals)) }];
  }
  return reasons.slice(0, REASONS_MAX).map((reason, index) => ({
    name: words(reason),
    color: COLORS[index]!,
    values: spans.map(({ refusals }) => (refusals?.[reason] ?? 0) / spanSeconds),
  }));
}
