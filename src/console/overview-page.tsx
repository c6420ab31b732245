/**
 * What the gateway does now and has done: figures, charts, upstreams, threads. Browser.
 */
import { useState } from 'preact/hooks';
import { OverviewCharts } from './overview-charts.js';
import { ModelTable, ThreadTable } from './overview-tables.js';
import { BusyAccounts } from './busy-accounts.js';
import { Choice, RANGE_TEXTS, RangeChoice } from './controls.js';
import { momentOf, percentile, sharesOf, sumOf } from './stats.js';
import { milliseconds, number, roughMoney, short } from './format.js';
import type { Live } from './live.js';
import { Tiles, type Tile } from './table.js';
import { UpstreamTable } from './upstream-table.js';
import type { Range } from './views.js';

interface OverviewProps {
  readonly live: Live;
  readonly onRange: (range: Range) => void;
}

export function OverviewPage({ live, onRange }: OverviewProps) {
  const [model, setModel] = useState('');
  const status = live.pictures.at(-1);
  const models = [
    ...new Set([...(status?.models.map(({ id }) => id) ?? []), ...(model === '' ? [] : [model])]),
  ];
  return (
    <>
      <div class="head">
        <h1>Overview</h1>
        <div class="head-end">
          <Choice
            label="Model"
            value={model}
            options={[['', 'All models'], ...models.map((id) => [id, id] as const)]}
            onChoice={setModel}
          />
          <RangeChoice value={live.range} onChoice={onRange} />
        </div>
      </div>
      <LastSeconds live={live} model={model} />
      <OverviewCharts live={live} model={model} />
      <section>
        <h2>Upstreams</h2>
        <UpstreamTable pictures={live.pictures} />
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
  const status = live.pictures.at(-1);
  const moment = momentOf(live.pictures, model);
  const rate = (count: number): number => (moment === undefined ? 0 : count / moment.seconds);
  const shares = sharesOf(moment?.outcomes);
  const [prompt = 0, , completion = 0] = moment?.tokens ?? [];
  const bounds = status?.duration_ms.bounds ?? [];
  const firstBounds = status?.first_token_ms.bounds ?? [];
  const calls = sumOf(moment?.outcomes);
  const tiles: readonly Tile[] = [
    [
      'Requests',
      `${short(rate(calls))}/s`,
      calls === 0 ? 'none just now' : `${number((100 * shares.answered) / calls)} % answered`,
    ],
    ['Refused', `${short(rate(shares.refused))}/s`, topReason(moment?.refusals)],
    ['Failed', `${short(rate(shares.failed))}/s`, 'by upstreams or here'],
    ['In flight', short(status?.calls_in_flight ?? 0), `of ${short(status?.limits.calls_in_flight ?? 0)}`],
    ['Tokens', `${short(rate(prompt + completion))}/s`, `${short(rate(completion))} of them answers`],
    ['Spend', `${roughMoney(rate(moment?.cost ?? 0) * SECONDS_PER_HOUR)}/h`, 'at this pace'],
    [
      'Latency',
      milliseconds(percentile(moment?.duration, bounds, 0.5)),
      `p95 ${milliseconds(percentile(moment?.duration, bounds, 0.95))}`,
    ],
    [
      'First token',
      milliseconds(percentile(moment?.first_token, firstBounds, 0.5)),
      `p95 ${milliseconds(percentile(moment?.first_token, firstBounds, 0.95))}`,
    ],
  ];
  return <Tiles label="The last ten seconds" tiles={tiles} />;
}

function topReason(refusals: Readonly<Record<string, number>> = {}): string {
  const [top] = Object.entries(refusals).sort(([, left], [, right]) => right - left);
  return top === undefined || top[1] === 0 ? 'none just now' : top[0].replaceAll('_', ' ');
}
