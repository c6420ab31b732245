/**
 * The overview, which main.tsx shows first: what the gateway does now and has done, in tiles, charts,
 * upstreams, models, accounts, threads. Browser (test/e2e/console.test.ts).
 */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { StatusDocument } from '../telemetry/status-document.js';
import { BusyAccounts } from './account-course.js';
import { callsAddress } from './browser.js';
import { Choice, RANGE_TEXTS, RangeChoice } from './controls.js';
import { bytes, milliseconds, number, roughMoney, short, words } from './format.js';
import { lastSecondsOf, type Live, percentile, type Range, sharesOf, type Span, sumOf } from './live.js';
import { OverviewCharts } from './overview-charts.js';
import { Table, type Tile, Tiles } from './table.js';
import { UpstreamTable } from './upstreams-page.js';

interface OverviewProps {
  readonly live: Live;
  readonly onRange: (range: Range) => void;
}

export function OverviewPage({ live, onRange }: OverviewProps) {
  const [model, setModel] = useState('');
  const status = live.snapshots.at(-1);
  const models = [
    ...new Set([...(status?.models.map(({ id }) => id) ?? []), ...(model === '' ? [] : [model])]),
  ];
  return (
    <>
      <div class="head">
        <h1>Overview</h1>
        <div class="head-end">
          <Choice label="Model" value={model} onValue={setModel} options={[['', 'All models'], ...models]} />
          <RangeChoice value={live.range} onValue={onRange} />
        </div>
      </div>
      <LastSeconds live={live} model={model} />
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

const SECONDS_PER_HOUR = 3_600;

function LastSeconds({ live, model }: { readonly live: Live; readonly model: string }) {
  const status = live.snapshots.at(-1);
  const last = lastSecondsOf(live.snapshots, model);
  const rate = (count: number): number => (last === undefined ? 0 : count / last.seconds);
  const perSecond = (count: number): string => `${short(rate(count))}/s`;
  const shares = sharesOf(last?.outcomes);
  const [prompt, , completion] = last?.tokens ?? [0, 0, 0];
  const calls = sumOf(last?.outcomes);
  const percentiles = (
    counts: Span['duration'],
    bounds: readonly number[] = [],
  ): [ComponentChildren, string] => [
    <a href={callsAddress({ model, failed: 'false' })}>{milliseconds(percentile(counts, bounds, 0.5))}</a>,
    `p95 ${milliseconds(percentile(counts, bounds, 0.95))}`,
  ];
  const answered = calls === 0 ? 'none just now' : `${number((100 * shares.answered) / calls)} % answered`;
  const tiles: readonly Tile[] = [
    ['Requests', <a href={callsAddress({ model })}>{perSecond(calls)}</a>, answered],
    [
      'Refused',
      <a href={callsAddress({ model, status: '4xx' })}>{perSecond(shares.rejected)}</a>,
      topReason(last?.refusals),
    ],
    [
      'Failed',
      <a href={callsAddress({ model, status: '5xx' })}>{perSecond(shares.failed)}</a>,
      'by upstreams or here',
    ],
    ['In flight', short(status?.calls_in_flight ?? 0), `of ${short(status?.limits.calls_in_flight ?? 0)}`],
    [
      'Tokens',
      <a href={callsAddress({ model })}>{perSecond(prompt + completion)}</a>,
      `${perSecond(completion)} of them answers`,
    ],
    [
      'Spend',
      <a href={callsAddress({ model })}>{`${roughMoney(rate(last?.cost ?? 0) * SECONDS_PER_HOUR)}/h`}</a>,
      'at this pace',
    ],
    ['Latency', ...percentiles(last?.duration, status?.duration_ms.bounds)],
    ['First token', ...percentiles(last?.first_token, status?.first_token_ms.bounds)],
  ];
  return <Tiles label="The last ten seconds" tiles={tiles} />;
}

function topReason(refusals: Readonly<Record<string, number>> = {}): string {
  const [top] = Object.entries(refusals).sort(([, left], [, right]) => right - left);
  return top === undefined || top[1] === 0 ? 'none just now' : words(top[0]);
}

interface ModelSums {
  readonly id: string;
  calls: number;
  failed: number;
  tokens: number;
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
        {
          head: 'Calls',
          figure: ({ calls }) => calls,
          format: short,
          href,
        },
        {
          head: 'Failed',
          figure: ({ failed }) => failed,
          format: short,
          href: ({ id }) => callsAddress({ model: id, from, status: '5xx' }),
        },
        { head: 'Tokens', figure: ({ tokens }) => tokens, format: short, href },
        { head: 'Cost', figure: ({ cost }) => cost, format: roughMoney, href },
      ]}
    />
  );
}

function modelSums(spans: readonly Span[]): ModelSums[] {
  const sums = new Map<string, ModelSums>();
  for (const { models = {} } of spans) {
    for (const [id, { outcomes, tokens, cost = 0 }] of Object.entries(models)) {
      const sum = sums.get(id) ?? { id, calls: 0, failed: 0, tokens: 0, cost: 0 };
      sums.set(id, sum);
      sum.calls += sumOf(outcomes);
      sum.failed += sharesOf(outcomes).failed;
      sum.tokens += (tokens?.[0] ?? 0) + (tokens?.[2] ?? 0);
      sum.cost += cost;
    }
  }
  return [...sums.values()].sort((left, right) => right.calls - left.calls);
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
