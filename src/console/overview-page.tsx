/**
 * The overview, which main.tsx shows first: what the gateway does now and has done, in tiles, charts, and
 * tables of upstreams, models, accounts and threads. A chart has one point for each span of the history
 * (telemetry/history.ts), 2 seconds to 5 minutes by the range shown. Rejections are called refusals in the
 * status and on this page. Browser.
 *
 * Must hold: the count of failed calls links to all of them, also to those that broke after a status 200
 * (test/e2e/console-numbers.test.ts; other parts of the page: test/e2e/console.test.ts).
 */
import type { ComponentChildren } from 'preact';
import { useState, useMemo } from 'preact/hooks';
import { percentileOf, type StatusDocument } from '../telemetry/status-document.js';
import { BusyAccounts } from './account-charts.js';
import { callsAddress } from './address.js';
import { chart, type ChartContent, Charts, type Series } from './chart.js';
import { Choice, RANGE_TEXTS, RangeChoice, type Tile, Tiles } from './controls.js';
import { bytes, HOUR_SECONDS, milliseconds, percent, roughMoney, shortNumber, words } from './format.js';
import {
  FAILURE_CODES,
  lastSecondsOf,
  type Live,
  type Range,
  callsByKind,
  type Span,
  sumOfCounts,
  type Growth,
  growthOf,
  rangeSeconds,
} from './live.js';
import { Table } from './table.js';
import { UpstreamTable } from './upstreams-page.js';

interface OverviewProps {
  /** The stats of the one stream, which main.tsx has opened. */
  readonly live: Live;
  readonly onRange: (range: Range) => void;
}

export function OverviewPage({ live, onRange }: OverviewProps) {
  /** Id of the selected model; empty for all models, as is `model` of the functions below. */
  const [model, setModel] = useState('');
  const status = live.snapshots.at(-1);
  const models = status?.models.map(({ id }) => id) ?? [];
  return (
    <>
      <div class="head">
        <h1>Overview</h1>
        <div class="head-end">
          <Choice label="Model" value={model} onValue={setModel} options={[['', 'All models'], ...models]} />
          <RangeChoice value={live.range} onValue={onRange} />
        </div>
      </div>
      <LastSecondsTiles live={live} model={model} />
      <OverviewCharts live={live} model={model} />
      <section>
        <h2>Upstreams</h2>
        <UpstreamTable snapshots={live.snapshots} />
      </section>
      <div class="columns">
        <section>
          <h2>Models, {RANGE_TEXTS[live.range]}</h2>
          <ModelTable spans={live.spans} />
        </section>
        <section>
          <h2>Busiest accounts, {RANGE_TEXTS[live.range]}</h2>
          <BusyAccounts range={live.range} />
        </section>
      </div>
      <section>
        <h2>Threads</h2>
        <ThreadTable status={status} />
      </section>
    </>
  );
}

/**
 * Returns a percentile of a histogram in milliseconds; null if nothing was measured. A value above the last
 * bound counts as that bound.
 */
const percentile = (counts: Growth['duration'], bounds: readonly number[], fraction: number): number | null =>
  percentileOf(bounds, counts ?? {}, fraction)?.ms ?? null;

/** `tokens` of a Growth without calls. The numbers are those of prompts, of cached ones, of completions. */
const NO_TOKENS: NonNullable<Growth['tokens']> = [0, 0, 0];

/** Tiles with the rates of the last ten seconds. They are 0 until two snapshots have come. */
function LastSecondsTiles({ live, model }: { readonly live: Live; readonly model: string }) {
  const status = live.snapshots.at(-1);
  const growth = lastSecondsOf(live.snapshots, model);
  const rate = (count: number): number => (growth === undefined ? 0 : count / growth.seconds);
  const perSecond = (count: number): string => `${shortNumber(rate(count))}/s`;
  const shares = callsByKind(growth?.outcomes);
  const [prompt, , completion] = growth?.tokens ?? NO_TOKENS;
  const calls = sumOfCounts(growth?.outcomes);
  /** The value and the hint of a tile: the median, and the 95th percentile. */
  const latencyTexts = (
    counts: Span['duration'],
    bounds: readonly number[] = [],
  ): [ComponentChildren, string] => [
    <a href={callsAddress({ model, failed: 'false' })}>{milliseconds(percentile(counts, bounds, 0.5))}</a>,
    `p95 ${milliseconds(percentile(counts, bounds, 0.95))}`,
  ];
  const answeredText = calls === 0 ? 'none just now' : `${percent(shares.answered, calls)} answered`;
  const tiles: readonly Tile[] = [
    ['Requests', <a href={callsAddress({ model })}>{perSecond(calls)}</a>, answeredText],
    [
      'Refused',
      <a href={callsAddress({ model, status: '4xx' })}>{perSecond(shares.rejected)}</a>,
      topReason(growth?.refusals),
    ],
    [
      'Failed',
      <a href={callsAddress({ model, code: FAILURE_CODES })}>{perSecond(shares.failed)}</a>,
      'by upstreams or here',
    ],
    [
      'In flight',
      shortNumber(status?.calls_in_flight ?? 0),
      `of ${shortNumber(status?.limits.calls_in_flight ?? 0)}`,
    ],
    [
      'Tokens',
      <a href={callsAddress({ model })}>{perSecond(prompt + completion)}</a>,
      `${perSecond(completion)} of them answers`,
    ],
    [
      'Spend',
      <a href={callsAddress({ model })}>{`${roughMoney(rate(growth?.cost ?? 0) * HOUR_SECONDS)}/h`}</a>,
      'at this pace',
    ],
    ['Latency', ...latencyTexts(growth?.duration, status?.duration_ms.bounds)],
    ['First token', ...latencyTexts(growth?.first_token, status?.first_token_ms.bounds)],
  ];
  return <Tiles label="The last ten seconds" tiles={tiles} />;
}

/** Returns the most frequent reason of rejections, in words. */
function topReason(refusals: Readonly<Record<string, number>> = {}): string {
  const [mostFrequent] = Object.entries(refusals).sort(([, first], [, second]) => second - first);
  const [reason, count] = mostFrequent ?? ['', 0];
  return count === 0 ? 'none just now' : words(reason);
}

interface ModelSums {
  readonly id: string;
  calls: number;
  failed: number;
  /** Tokens of prompts and completions. */
  tokens: number;
  /** The cost in units of the currency, a float. */
  cost: number;
}

function ModelTable({ spans }: { readonly spans: readonly Span[] }) {
  const rows = modelSums(spans);
  const from = String(Math.floor(spans[0]?.start ?? 0));
  const href = ({ id }: ModelSums): string => callsAddress({ model: id, from });
  if (rows.length === 0) return <p class="empty">No calls in this time.</p>;
  return (
    <Table
      label="Models"
      rows={rows}
      keyOf={({ id }) => id}
      columns={[
        { head: 'Model', text: ({ id }) => id },
        { head: 'Calls', figure: ({ calls }) => calls, format: shortNumber, href },
        {
          head: 'Failed',
          figure: ({ failed }) => failed,
          format: shortNumber,
          href: ({ id }) => callsAddress({ model: id, from, code: FAILURE_CODES }),
        },
        { head: 'Tokens', figure: ({ tokens }) => tokens, format: shortNumber, href },
        { head: 'Cost', figure: ({ cost }) => cost, format: roughMoney, href },
      ]}
    />
  );
}

function modelSums(spans: readonly Span[]): ModelSums[] {
  const sums = new Map<string, ModelSums>();
  for (const { models = {} } of spans) {
    for (const [id, { outcomes, tokens = NO_TOKENS, cost = 0 }] of Object.entries(models)) {
      const [prompt, , completion] = tokens;
      const modelSum = sums.get(id) ?? { id, calls: 0, failed: 0, tokens: 0, cost: 0 };
      sums.set(id, modelSum);
      modelSum.calls += sumOfCounts(outcomes);
      modelSum.failed += callsByKind(outcomes).failed;
      modelSum.tokens += prompt + completion;
      modelSum.cost += cost;
    }
  }
  return [...sums.values()].sort((first, second) => second.calls - first.calls);
}

function ThreadTable({ status }: { readonly status: StatusDocument | undefined }) {
  return (
    <Table
      label="Threads"
      rows={status?.threads ?? []}
      keyOf={({ name }) => name}
      columns={[
        { head: 'Thread', text: ({ name }) => name },
        {
          head: 'Event loop delay, p99',
          figure: (thread) => thread.event_loop_delay_ms_p99,
          format: milliseconds,
        },
        { head: 'Heap', figure: (thread) => thread.heap_bytes, format: bytes },
      ]}
    />
  );
}

/** Series in the chart of rejections: style/theme.css has five colours, --series-1 to --series-5. */
const REASONS_MAX = 5;
/** No percentile has --series-3, the red of failed calls, because a high percentile is no failure. */
const PERCENTILES: readonly (readonly [name: string, color: string, fraction: number])[] = [
  ['p50', '--series-5', 0.5],
  ['p95', '--series-1', 0.95],
  ['p99', '--series-4', 0.99],
];

function OverviewCharts({ live, model }: { readonly live: Live; readonly model: string }) {
  const { spans, spanSeconds, range } = live;
  // The histograms of a snapshot have the same bounds as those of the spans.
  const newestSnapshot = live.snapshots.at(-1);
  const durationBounds = newestSnapshot?.duration_ms.bounds;
  const firstTokenBounds = newestSnapshot?.first_token_ms.bounds;
  const charts = useMemo((): readonly ChartContent[] => {
    // By how much the counters grew in each span.
    const growths = spans.map((span) => growthOf(span, model));
    const series = (name: string, color: string, value: (growth: Growth) => number | null): Series => ({
      name,
      color,
      values: growths.map(value),
    });
    const perSecond = (name: string, color: string, count: (growth: Growth) => number): Series => ({
      name,
      color,
      values: growths.map((growth, index) => count(growth) / secondsOf(spans[index]!, spanSeconds)),
    });
    const percentileSeries = (
      counts: (growth: Growth) => Growth['duration'],
      bounds: readonly number[] = [],
    ): readonly Series[] =>
      PERCENTILES.map(([name, color, fraction]) =>
        series(name, color, (growth) => percentile(counts(growth), bounds, fraction)),
      );
    return [
      {
        ...chart('Requests', 'per second', shortNumber, [
          perSecond('answered', '--series-1', ({ outcomes }) => callsByKind(outcomes).answered),
          perSecond('refused', '--series-2', ({ outcomes }) => callsByKind(outcomes).rejected),
          perSecond('failed', '--series-3', ({ outcomes }) => callsByKind(outcomes).failed),
          perSecond('client left', '--series-4', ({ outcomes }) => callsByKind(outcomes).left),
        ]),
        isWide: true,
      },
      chart(
        'Latency',
        'whole answer',
        milliseconds,
        percentileSeries(({ duration }) => duration, durationBounds),
      ),
      chart(
        'First token',
        'of streams',
        milliseconds,
        percentileSeries((growth) => growth.first_token, firstTokenBounds),
      ),
      chart('Tokens', 'per second', shortNumber, [
        perSecond('prompt', '--series-1', ({ tokens: [prompt] = NO_TOKENS }) => prompt),
        perSecond('cached', '--series-2', ({ tokens: [, cached] = NO_TOKENS }) => cached),
        perSecond('completion', '--series-5', ({ tokens: [, , completion] = NO_TOKENS }) => completion),
      ]),
      chart('Spend', 'per hour', roughMoney, [
        // `cost` is in units of the currency, a float, which is exact enough for a chart.
        perSecond('spend', '--series-1', ({ cost = 0 }) => cost * HOUR_SECONDS),
      ]),
      ...(model === '' ? chartsOfAllModels(spans, spanSeconds) : []),
    ];
    // The bounds never change. So their number is enough of a dependency: it tells whether they have come.
  }, [spans, spanSeconds, model, durationBounds?.length, firstTokenBounds?.length]);
  /** Each value is drawn at the end of its span. */
  const times = useMemo(() => spans.map(({ start }) => start + spanSeconds), [spans, spanSeconds]);
  return <Charts times={times} seconds={rangeSeconds(range)} charts={charts} />;
}

/** Returns the length of a span: its own `seconds` if that is not the usual `spanSeconds`. */
const secondsOf = ({ seconds }: Span, spanSeconds: number): number => seconds ?? spanSeconds;

/** Charts of counts that the gateway does not have by model, so they are left out if a model is selected. */
function chartsOfAllModels(spans: readonly Span[], spanSeconds: number): ChartContent[] {
  return [
    {
      ...chart('Refusals', 'per second, by reason', shortNumber, rejectionSeries(spans, spanSeconds)),
      isWide: true,
    },
    chart('In flight', 'calls, at most', shortNumber, [
      { name: 'calls', color: '--series-1', values: spans.map((span) => span.in_flight) },
    ]),
  ];
}

/** Rejections per second, by the most frequent reasons in the range shown. */
function rejectionSeries(spans: readonly Span[], spanSeconds: number): Series[] {
  const countByReason: Record<string, number> = {};
  for (const { refusals = {} } of spans) {
    for (const [reason, count] of Object.entries(refusals))
      countByReason[reason] = (countByReason[reason] ?? 0) + count;
  }
  const reasons = Object.entries(countByReason)
    .sort(([, first], [, second]) => second - first)
    .map(([reason]) => reason);
  if (reasons.length === 0) return [{ name: 'none', color: '--series-1', values: spans.map(() => 0) }];
  return reasons.slice(0, REASONS_MAX).map((reason, index) => ({
    name: words(reason),
    color: `--series-${index + 1}`,
    values: spans.map((span) => (span.refusals?.[reason] ?? 0) / secondsOf(span, spanSeconds)),
  }));
}
